"""Targets: the host by default, since TVM's plain ``llvm`` target is a generic CPU without vector units."""

from __future__ import annotations

from tvm.target import Target, codegen

from .runtime import num_threads


def host_target() -> Target:
    """The CPU that this process runs on, with all its instruction sets and the pool's number of threads."""
    triple = codegen.llvm_get_system_triple()
    cpu = codegen.llvm_get_system_cpu()
    return Target({"kind": "llvm", "mtriple": triple, "mcpu": cpu, "num-cores": num_threads()})


def current_target() -> Target:
    """The target in scope (``with target:``), else the host."""
    return Target.current(allow_none=True) or host_target()
