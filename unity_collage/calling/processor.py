"""The instruction sets that a program was compiled for. A processor without one of them would end the process."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm.target import Target

_GENERATED = re.compile(
    "avx|amx|s?sse[0-9]|fma|f16c|bmi|lzcnt|popcnt|movbe|adx|gfni|vaes|vpclmul|xop|tbm|sha$|neon|sve|dotprod|fullfp16"
    "|bf16|i8mm"
)
"""Features of LLVM's processors that code generators use. The others are for system software, or only about speed."""

_OF_LLVM = {"abm": "lzcnt", "bmi1": "bmi", "pni": "sse3", "sha_ni": "sha"}
"""LLVM's names of features for which Linux has another name."""


def host_of(target: Target) -> Target:
    """The target of the CPU that calls the kernels: the host of a target for a GPU, if it names one."""
    return target if target.kind.name == "llvm" or target.host is None else target.host


def instruction_sets(target: Target) -> list[str]:
    """The instruction sets of a target, or of its host, in order; empty where LLVM knows nothing about it."""
    from tvm.target import codegen  # LLVM: only a process that compiles needs it

    target = host_of(target)
    return sorted(_sets(codegen.llvm_get_cpu_features(target))) if target.kind.name == "llvm" else []


def processor_of(target: Target) -> str:
    """The processor of a target, or of its host, as Linux names it, such as ``x86_64``."""
    from tvm.target import codegen

    triple = str(host_of(target).attrs.get("mtriple") or codegen.llvm_get_system_triple())
    name = triple.partition("-")[0]
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def why_not_here(required: Sequence[str]) -> str | None:
    """Why a program that uses ``required`` instruction sets cannot run on this processor, or None.

    LLVM is asked only where Linux does not list all of them.
    """
    if _names_of_linux().issuperset(map(_plain, required)):
        return None
    from tvm.target import Target, codegen

    cpu, triple = codegen.llvm_get_system_cpu(), codegen.llvm_get_system_triple()
    here = _sets(codegen.llvm_get_cpu_features(Target({"kind": "llvm", "mtriple": triple, "mcpu": cpu})))
    missing = [name for name in required if name not in here]
    return (
        f"it was compiled for a processor with {', '.join(missing)}, which {cpu} lacks" if missing else None
    )


@cache
def _names_of_linux() -> frozenset[str]:
    """The features that Linux reports for the processor, also by LLVM's names if they differ."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return frozenset()
    lines = (line.partition(":") for line in text.splitlines())
    flags = next((value.split() for name, _, value in lines if name.strip() in ("flags", "Features")), [])
    return frozenset(_plain(_OF_LLVM.get(flag, flag)) for flag in flags)


def _plain(name: str) -> str:
    """``avx512_vnni`` and ``sse4_1`` of Linux are ``avx512vnni`` and ``sse4.1`` of LLVM."""
    return re.sub("[-._]", "", name)


def _sets(features: Iterable[object]) -> set[str]:
    return {str(feature) for feature in features if _GENERATED.match(str(feature))}
