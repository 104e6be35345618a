"""Runs a kernel between guard pages, on inputs that it cannot write to, so that any access outside is seen."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from ..database.rows import FailureKind
from ..graph.shapes import dtype_of, extents_of
from ..runtime import guards
from .refusal import Refusal, Refused

WROTE_OUTSIDE = "it wrote outside of its tensors"
READ_OUTSIDE = "it read outside of its tensors"
WROTE_INPUT = "it wrote to one of its inputs"


def watch(file: int, line: Callable[[str], str]) -> None:
    """Write ``line(reason)`` to the descriptor ``file`` when a guard page is touched, before the process ends."""
    guards.watch_guards(
        file,
        wrote_outside=line(WROTE_OUTSIDE),
        read_outside=line(READ_OUTSIDE),
        wrote_input=line(WROTE_INPUT),
    )


def outputs_of(
    kernel: Any,
    inputs: Sequence[np.ndarray],
    constants: Sequence[tvm.runtime.Tensor],
    func: relax.Function,
    at_end: bool,
) -> list[np.ndarray]:
    """The outputs of ``kernel`` for ``inputs``; raises Refused when it writes outside of its outputs.

    All tensors end before a guard page (``at_end``) or begin behind one. A touch of the page ends the process; writes
    nearer than the page change the red zone next to the outputs. Run a kernel twice to watch both ends.
    """
    taken = [_guarded(array, at_end) for array in [*inputs, *(c.numpy() for c in constants)]]
    for tensor in taken:
        guards.protect(tensor)
    outputs = [guards.guarded_tensor(shape, dtype, at_end) for shape, dtype in output_types(func)]
    kernel(*taken, *outputs)
    if not all(guards.is_red_zone_intact(output) for output in outputs):
        raise Refused(Refusal(WROTE_OUTSIDE, FailureKind.WROTE_OUTSIDE))
    # All tensors are of TVM's class once TVM is imported.
    return [cast(tvm.runtime.Tensor, output).numpy() for output in outputs]


def output_types(func: relax.Function) -> list[tuple[tuple[int, ...], str]]:
    """Shape and dtype of each result of ``func``."""
    types = func.ret_ty.fields if isinstance(func.ret_ty, relax.TupleType) else [func.ret_ty]
    return [(extents_of(ty), dtype_of(ty)) for ty in types]


def output_bytes(func: relax.Function) -> int:
    """How many bytes the results of ``func`` have."""
    return sum(math.prod(shape) * tvm_ffi.dtype(dtype).bits // 8 for shape, dtype in output_types(func))


def _guarded(array: np.ndarray, at_end: bool) -> Any:
    tensor = guards.guarded_tensor(array.shape, str(array.dtype), at_end)
    ctypes.memmove(tensor.data_ptr(), np.ascontiguousarray(array).ctypes.data, array.nbytes)
    return tensor
