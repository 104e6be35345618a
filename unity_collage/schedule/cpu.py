"""The traits of a CPU that schedules depend on: vector width, vector registers, cores."""

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
    """The numbers of a CPU target that decide tile sizes."""

    vector_bytes: int
    """The width of a vector register."""
    registers: int
    """The number of vector registers in the instruction set."""
    cores: int
    """The number of threads of a parallel loop."""

    @staticmethod
    def of(target: Target) -> CpuTraits:
        """The traits of ``target``; a target without ``num-cores`` has those of this host."""
        attrs: Any = target.attrs
        cores = int(attrs.get("num-cores", 0)) or os.cpu_count() or 1
        return CpuTraits(*_vectors(target), cores)

    def running(self, kernel: ir.BaseFunc) -> CpuTraits:
        """The traits with at most as many cores as ``kernel`` may use threads."""
        threads = threads_of(kernel)
        return self if threads is None else replace(self, cores=min(self.cores, threads))

    def lanes(self, dtype: str) -> int:
        """The elements of ``dtype`` in a vector register; a boolean is a byte."""
        return max(self.vector_bytes // max(tvm.DataType(dtype).bits // 8, 1), 1)


def _vectors(target: Target) -> tuple[int, int]:
    """The bytes of a vector register, and the number of registers.

    x86 is looked up by feature, since TVM's ``llvm_get_vector_width`` returns 64 for every x86-64.
    """
    for feature, nbytes, registers in _X86:
        if codegen.target_has_features(feature, target):
            return nbytes, registers
    return max(int(codegen.llvm_get_vector_width(target)) // 8, 16), 32


_X86 = (("avx512f", 64, 32), ("avx", 32, 16), ("sse2", 16, 16))
"""Features of x86, with the bytes and the number of vector registers, widest first."""
