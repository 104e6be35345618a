"""Reductions over neighbouring axes: of rows by the reduction primitive, of columns as global pooling."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tvm import relax

from ...graph.free_sizes import is_free
from ..native.program import NativeStep
from ..native.values import attrs_of, ints, op_name, shape_of, static_shape, view_of
from .eltwise import linear
from .limits import why_not_operand
from .pooling import pool
from .windows import Window

_ROWS: Mapping[str, str] = {
    "relax.sum": "sum",
    "relax.mean": "mean",
    "relax.max": "max",
    "relax.min": "min",
    "relax.prod": "mul",
}

_COLUMNS: Mapping[str, str] = {
    "relax.sum": "avg_include_padding",
    "relax.mean": "avg_include_padding",
    "relax.max": "max",
}
"""Reductions that pooling computes; a sum is an average times the count."""


def step(call: relax.Call) -> NativeStep | str:
    """Reduction -> reduction of [outer, reduced] or pooling of [outer, inner, reduced] with channels innermost."""
    data = call.args[0]
    reason = why_not_operand("reduction", "operand", data)
    if reason is not None:
        return reason
    if shape_of(call) is None:
        return "the result has no static shape"
    shape = static_shape(data)
    run = _run(shape, attrs_of(call).axis)
    if run is None:
        return "the reduced axes are not neighbours"
    outer, reduced, inner = (
        math.prod(shape[part]) for part in (slice(run.start), run, slice(run.stop, None))
    )
    if is_free(reduced):
        return "the number of reduced elements may be 1, which oneDNN does not reduce"
    if reduced == 1:
        return "every reduced axis has one element"
    if inner == 1:
        return _rows(call, outer, reduced)
    if op_name(call) not in _COLUMNS:
        return "the reduced axes are not innermost"
    return _columns(call, outer, reduced, inner)


def _run(shape: tuple[int, ...], axes: object) -> slice | None:
    """The reduced axes as a slice, without leading and trailing axes of one element; None if not neighbours."""
    chosen = range(len(shape)) if axes is None else {axis % len(shape) for axis in ints(axes)}
    reduced = sorted(axis for axis in chosen if shape[axis] != 1)
    if not reduced:
        return slice(len(shape), len(shape))
    between = [axis for axis in range(reduced[0], reduced[-1]) if shape[axis] != 1 and axis not in reduced]
    return None if between else slice(reduced[0], reduced[-1] + 1)


def _rows(call: relax.Call, outer: int, reduced: int) -> NativeStep:
    args = (
        ("src", view_of(call.args[0], (outer, reduced))),
        ("dst", view_of(call, (outer, 1))),
    )
    return NativeStep("reduction", args, (("algorithm", _ROWS[op_name(call)]), ("p", 0.0), ("eps", 0.0)))


def _columns(call: relax.Call, outer: int, reduced: int, inner: int) -> NativeStep:
    source = view_of(call.args[0], (outer, inner, reduced), (inner * reduced, 1, inner))
    result = view_of(call, (outer, inner, 1), (inner, 1, inner))
    none = (0,)
    made = pool(source, result, _COLUMNS[op_name(call)], (reduced,), Window((1,), none, none, none))
    return made.then(linear(float(reduced))) if op_name(call) == "relax.sum" else made


ENTRIES = dict.fromkeys(_ROWS, step)
