"""The bytes that kernels hold in addition to their operands: constants and temporaries of libraries, and TVM's
buffers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import IRModule
from tvm.target import Target

from .. import runtime
from ..graph.shapes import ints
from ..runtime.torch_kernels import KIND as TORCH
from ..runtime.vendors import VENDORS
from ..sessions import RUNTIMES

_ON_STACK = 1024
"""TVM puts smaller buffers on the stack, in bytes."""
_COMPACTING = (
    s_tir.transform.LowerCrossThreadReduction,
    s_tir.transform.LowerInitBlock,
    s_tir.transform.PlanAndUpdateBufferAllocationLocation,
    s_tir.transform.ConvertBlocksToOpaque,
    s_tir.transform.CompactBufferAllocation,
)
"""The passes after which a buffer is as large as the loops around it need, in the order of TVM's pipeline."""


@dataclass(frozen=True, slots=True)
class LibraryMemory:
    """What the native modules of a program hold."""

    constants: int
    """The bytes of their weights: as the model has them, and packed copies."""
    temporaries: Mapping[str, int]
    """For each function of fixed sizes the bytes of values between its steps and of the library's scratch."""
    runtimes: tuple[str, ...] = ()
    """The runtimes of the program that hold weights and values of their own, which are not known."""


def library_memory(modules: Sequence[Any]) -> LibraryMemory:
    """What the native modules among ``modules`` hold."""
    titles = {f"collage.{name}": found.title for name, found in RUNTIMES.items()} | {TORCH: "PyTorch"}
    kinds = {f"collage.{name}" for name in VENDORS} - titles.keys()
    constants, temporaries = 0, dict[str, int]()
    for module in modules:
        if str(module.kind) not in kinds:
            continue
        ends = [c["offset"] + c["nbytes"] for program in _programs(module) for c in program["constants"]]
        constants += max(ends, default=0)
        for line in str(module.inspect_source("memory")).splitlines():
            name, packed, workspace = line.rsplit(" ", 2)
            constants += int(packed)
            temporaries[name] = int(workspace)
    runtimes = sorted({title for module in modules if (title := titles.get(str(module.kind)))})
    return LibraryMemory(constants, temporaries, tuple(runtimes))


def _programs(module: Any) -> list[dict[str, Any]]:
    return json.loads(str(module.inspect_source()) or "{}").get("programs", [])


def temporaries_of(mod: IRModule, target: Target) -> dict[str, int]:
    """An upper bound of the bytes of each PrimFunc's own buffers: TVM may put two into one place."""
    own = {
        gvar: func
        for gvar, func in mod.functions_items()
        if isinstance(func, tirx.PrimFunc) and any(b.alloc_buffers for b in _nodes(func.body, s_tir.SBlock))
    }
    if not own:
        return {}
    compact = tvm.transform.Sequential([make() for make in _COMPACTING])(IRModule(own))
    threads = int(target.attrs.get("num-cores", 0)) or runtime.num_threads()
    return {
        gvar.name_hint: sum(_buffers(func.body, threads))
        for gvar, func in compact.functions_items()
        if isinstance(func, tirx.PrimFunc)
    }


def _buffers(body: Any, threads: int) -> Iterator[int]:
    """The bytes of each buffer; one inside a parallel loop counts for every thread that may run the loop."""
    inside: dict[Any, int] = {}
    for loop in _nodes(body, tirx.For):
        if loop.kind == tirx.ForKind.PARALLEL:
            extent = ints([loop.extent])
            copies = threads if extent is None else min(threads, extent[0])
            inside.update((buffer, copies) for buffer in _allocated(loop.body))
    for buffer in _allocated(body):
        extents = ints(buffer.shape)
        if extents is not None and buffer.scope() == "global":
            nbytes = math.prod(extents) * tvm_ffi.dtype(str(buffer.dtype)).bits // 8
            yield nbytes * inside.get(buffer, 1) if nbytes > _ON_STACK else 0


def _allocated(body: Any) -> list[Any]:
    return [buffer for block in _nodes(body, s_tir.SBlock) for buffer in block.alloc_buffers]


def _nodes(root: Any, kind: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(root, (kind, lambda node: found.append(node)))
    return found
