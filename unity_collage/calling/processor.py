"""The instruction sets that a program was compiled for. A processor without one of them would end the process."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tvm.target import Target, codegen

_GENERATED = re.compile(
    "avx|amx|s?sse[0-9]|fma|f16c|bmi|lzcnt|popcnt|movbe|adx|gfni|vaes|vpclmul|xop|tbm|sha$|neon|sve|dotprod|fullfp16"
    "|bf16|i8mm"
)
"""Features of LLVM's processors that code generators use: the rest is for system software, or about speed."""


def instruction_sets(target: Target) -> list[str]:
    """The instruction sets of a target, in order; empty where LLVM knows nothing about it."""
    return sorted(_sets(codegen.llvm_get_cpu_features(target)))


def why_not_here(required: Sequence[str]) -> str | None:
    """Why a program that uses ``required`` instruction sets cannot run on this processor, or None."""
    if not required:
        return None
    cpu, triple = codegen.llvm_get_system_cpu(), codegen.llvm_get_system_triple()
    here = _sets(codegen.llvm_get_cpu_features(Target({"kind": "llvm", "mtriple": triple, "mcpu": cpu})))
    missing = [name for name in required if name not in here]
    return (
        f"it was compiled for a processor with {', '.join(missing)}, which {cpu} lacks" if missing else None
    )


def _sets(features: Iterable[object]) -> set[str]:
    return {str(feature) for feature in features if _GENERATED.match(str(feature))}
