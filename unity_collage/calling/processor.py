"""The instruction sets that a program was compiled for. A processor without one of them would end the process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..runtime.instruction_sets import lists_all, sets_in, unlisted

if TYPE_CHECKING:
    from tvm.target import Target


def instruction_sets(target: Target) -> list[str]:
    """The instruction sets of a target, or of its host, in order; empty where LLVM knows nothing about it."""
    from tvm.target import codegen  # LLVM: only a process that compiles needs it

    from ..target import host_of

    target = host_of(target)
    return sorted(sets_in(codegen.llvm_get_cpu_features(target))) if target.kind.name == "llvm" else []


def why_not_run(target: Target) -> str | None:
    """Why kernels for a target, or the host of one for a GPU, cannot run on the CPU of this machine, or None."""
    from ..target import processor_of

    if (processor := processor_of(target)) != (here := os.uname().machine):
        return f"it is for {processor}, and this processor is {here}"
    return why_not_here(instruction_sets(target))


def why_not_here(required: Sequence[str]) -> str | None:
    """Why a program that uses ``required`` instruction sets cannot run on this processor, or None.

    Linux says what an x86 processor has. A virtual machine may hide some of what its model has, and LLVM knows only the
    model: it is asked only where Linux has other names.
    """
    missing = unlisted(required)
    if not missing:
        return None
    if lists_all():
        return f"it was compiled for a processor with {', '.join(missing)}, which this one lacks"
    from tvm.target import Target, codegen

    cpu, triple = codegen.llvm_get_system_cpu(), codegen.llvm_get_system_triple()
    here = sets_in(codegen.llvm_get_cpu_features(Target({"kind": "llvm", "mtriple": triple, "mcpu": cpu})))
    missing = [name for name in missing if name not in here]
    return (
        f"it was compiled for a processor with {', '.join(missing)}, which {cpu} lacks" if missing else None
    )
