"""A GPU to make kernels for, what NVRTC makes of them, and their threads one after the other on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tvm import tirx
from tvm.ir import IRModule
from tvm.target import Target
from tvm_ffi import structural_map

from unity_collage.lowering import nvrtc
from unity_collage.lowering.build import build
from unity_collage.lowering.fuse import fused
from unity_collage.schedule import gpu
from unity_collage.target import host_target

ARCH = "sm_90"
FIELDS = {
    "kind": "cuda",
    "arch": ARCH,
    "max_shared_memory_per_block": 49152,
    "max_threads_per_block": 1024,
    "thread_warp_size": 32,
}
TARGET = Target(FIELDS, host=host_target())

needs_nvrtc = pytest.mark.skipif(
    nvrtc.why_unavailable() is not None, reason=f"NVRTC cannot be used: {nvrtc.why_unavailable()}"
)


def kernels(mod: IRModule) -> list[tirx.PrimFunc]:
    return [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]


def sources(module: Any) -> Iterator[str]:
    """The CUDA sources of a built module: without a GPU nothing has compiled them yet."""
    if module.kind == "cuda":
        yield module.inspect_source("cuda")
    for imported in module.imports:
        yield from sources(imported)


def check_compiles(mod: IRModule, target: Target = TARGET) -> None:
    bound = fused(mod, target)
    assert [gpu.why_not_built(kernel, target) for kernel in kernels(bound)] == [None] * len(kernels(bound))
    found = list(sources(build(bound, target).mod))
    assert found
    for source in found:
        assert nvrtc.compiled(source, ARCH).startswith(b"\x7fELF")


def without_threads(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel with a loop for each of its threads, one after the other."""

    def serial(loop: tirx.For) -> tirx.For:
        if loop.thread_binding is None:
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return structural_map(func, [(tirx.For, serial)])
