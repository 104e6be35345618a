"""What a schedule must know of the processor: vector width, vector registers, cores."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import ir
from tvm.target import Target, codegen

from ..annotations import threads_of


@dataclass(frozen=True, slots=True)
class CpuTraits:
    """The few numbers of a CPU target that decide tile sizes."""

    vector_bytes: int
    """Width of one vector register."""
    registers: int
    """Vector registers that the instruction set names."""
    cores: int
    """Threads of a parallel loop."""

    @staticmethod
    def of(target: Target) -> CpuTraits:
        """Read ``target``; a target that does not say ``num-cores`` has those of this host."""
        attrs: Any = target.attrs
        cores = int(attrs.get("num-cores", 0)) or os.cpu_count() or 1
        return CpuTraits(*_vectors(target), cores)

    def running(self, kernel: ir.BaseFunc) -> CpuTraits:
        """This machine with as many cores as ``kernel`` may have threads."""
        threads = threads_of(kernel)
        return self if threads is None else replace(self, cores=min(self.cores, threads))

    def lanes(self, dtype: str) -> int:
        """Elements of ``dtype`` in one vector register (booleans count as bytes)."""
        return max(self.vector_bytes // max(tvm.DataType(dtype).bits // 8, 1), 1)


def _vectors(target: Target) -> tuple[int, int]:
    """Bytes of a vector register and how many there are; TVM's ``llvm_get_vector_width`` says 64 of any x86-64."""
    for feature, nbytes, registers in _X86:
        if codegen.target_has_features(feature, target):
            return nbytes, registers
    return max(int(codegen.llvm_get_vector_width(target)) // 8, 16), 32


_X86 = (("avx512f", 64, 32), ("avx", 32, 16), ("sse2", 16, 16))
"""Features of x86, bytes of a vector register, and their number, widest first."""
