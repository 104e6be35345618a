"""From steps on Relax values to a program on numbered buffers.

Temporaries with lifetimes that do not overlap share memory: a linear scan over the steps, with a free list by size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tvm import ir, relax

from ...graph.free_sizes import Size, places_of_sizes
from .flatten import Flat, NotFlat
from .program import Blob, Buffer, ConstantData, NativeProgram, NativeStep, ScratchTensor, item_size
from .values import array_of, dtype_of, is_tensor, shape_of


def assemble(
    name: str, flat: Flat, steps: Sequence[NativeStep], blob: Blob, threads: int | None = None
) -> NativeProgram:
    """The program of ``steps``, given in running order, on at most ``threads`` threads.

    Raises NotFlat if it would return a value that no step makes, or one value twice.
    """
    memory = _Memory(blob)
    params = [param for param in flat.params if is_tensor(param)]
    inputs = [memory.own(param) for param in params]
    written = [step.result.buffer for step in steps]
    results = [flat.resolve(result) for result in flat.results]
    if any(result not in written or results.count(result) > 1 for result in results):
        raise NotFlat("it returns what no operator makes, or one value twice")
    outputs = [memory.own(result) for result in results]
    numbered = memory.number([part for step in steps for part in (*step.before, replace(step, before=()))])
    sizes = places_of_sizes([shape_of(value) or () for value in (*params, *results)])
    numbers = [
        n for step in numbered for view in step.views() for n in (*view.dims, *view.strides, view.offset)
    ]
    for number in numbers:
        if isinstance(number, Size) and (untold := number.symbols() - set(sizes)):
            raise NotFlat(f"the size {min(untold)[0]} is neither an extent of an operand nor of a result")
    return NativeProgram(name, memory.buffers, inputs, outputs, memory.constants, numbered, threads, sizes)


@dataclass(slots=True)
class _Memory:
    blob: Blob
    buffers: list[Buffer] = field(default_factory=list)
    constants: list[ConstantData] = field(default_factory=list)
    of: dict[Any, int] = field(default_factory=dict)
    """The number of the buffer of each value that has one now."""
    free: list[int] = field(default_factory=list)

    def own(self, value: relax.Expr) -> int:
        """The number of a new buffer that only ``value`` uses."""
        shape = shape_of(value)
        if shape is None:
            raise NotFlat("it has a parameter or result of unknown shape")
        dtype = dtype_of(value)
        self.buffers.append(Buffer(_nbytes(shape, dtype), dtype, shape))
        self.of[value] = len(self.buffers) - 1
        return self.of[value]

    def number(self, steps: Sequence[NativeStep]) -> list[NativeStep]:
        """The steps on buffers. The memory of a temporary is free again after the last step that reads it."""
        last = {view.buffer: at for at, step in enumerate(steps) for view in step.views()}
        owned = set(self.of.values())
        numbered = []
        for at, step in enumerate(steps):
            numbered.append(step.map_views(lambda view: replace(view, buffer=self._buffer(view.buffer))))
            for value in dict.fromkeys(view.buffer for view in step.views()):
                temporary = not isinstance(value, ir.GenericConst) and self.of[value] not in owned
                if temporary and last[value] == at:
                    self.free.append(self.of[value])
        return numbered

    def _buffer(self, value: Any) -> int:
        if value not in self.of:
            if isinstance(value, ir.GenericConst):
                self._constant(value)
            elif isinstance(value, (relax.Var, ScratchTensor)):
                self.of[value] = self._temporary(value)
            else:
                raise NotFlat(f"it reads a {type(value).__name__}")
        return self.of[value]

    def _constant(self, value: ir.GenericConst) -> None:
        data = array_of(value).reshape(-1).view(np.uint8)
        number = self.own(value)
        self.constants.append(ConstantData(number, self.blob.add(data), data.nbytes))

    def _temporary(self, value: relax.Expr | ScratchTensor) -> int:
        shape, dtype = shape_of(value) or (), dtype_of(value)
        nbytes = _nbytes(shape, dtype)
        for number in self.free:
            if self.buffers[number].nbytes == nbytes:
                self.free.remove(number)
                return number
        self.buffers.append(Buffer(nbytes, dtype, shape))
        return len(self.buffers) - 1


def _nbytes(shape: tuple[int, ...], dtype: str) -> int:
    return math.prod(shape) * item_size(dtype)
