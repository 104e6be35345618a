"""TVM's tensor intrinsics for CPUs, by which schedules of MetaSchedule name an instruction."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

_PACKAGE = "tvm.s_tir.tensor_intrin"
_OF_CPUS = ("x86", "arm_cpu")


@cache
def register_cpu_intrinsics() -> None:
    """Register TVM's tensor intrinsics for CPUs, in this process; call it before MetaSchedule is imported.

    MetaSchedule imports all of them, and those for GPUs take 20 seconds. From LLVM 22 on the intrinsic of VNNI takes
    bytes. TVM 0.27 still gives it 32-bit numbers, so none of its schedules compiles. Such a schedule gets an intrinsic
    of ours with the same name.
    """
    from tvm.s_tir import TensorIntrin
    from tvm.target import codegen

    if _PACKAGE not in sys.modules:
        package = ModuleType(_PACKAGE)
        spec = find_spec(_PACKAGE)
        assert spec is not None and spec.submodule_search_locations is not None
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules[_PACKAGE] = package
    x86, _ = (import_module(f"{_PACKAGE}.{part}") for part in _OF_CPUS)
    if codegen.llvm_version_major() >= 22:
        from .vnni import dot_product_16x4_u8i8i32

        TensorIntrin.register(
            x86.VNNI_DOT_16x4_INTRIN,
            x86.dot_product_16x4_u8i8i32_desc,
            dot_product_16x4_u8i8i32,
            override=True,
        )
