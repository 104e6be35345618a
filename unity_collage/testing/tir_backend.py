"""A backend that lowers to TIR: softmax over rows, with its own loops, and rows that are scaled to length one.

Takes     softmax over the last axis of float32 matrices; x / sqrt(sum(x * x)) as one kernel.
Declines  other types, shapes and axes.
Needs     nothing besides TVM.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, s_tir, te, tirx
from tvm.ir import IRModule
from tvm.relax.dpl import is_op, wildcard
from tvm.target import Target

from ..backends.base import Backend
from ..graph.calls import calls, op_name
from ..graph.shapes import dtype_of, extents_of, shape_of
from ..rules import Composite, DFPattern, OnlyValid, OpPredicate, Union

SOFTMAX, UNIT_ROWS = "in_tir.softmax", "in_tir.unit_rows"


def _rule(_target: Target) -> Union:
    softmax = OpPredicate("softmax", frozenset({"relax.nn.softmax"}), _why_not_softmax)
    unit_rows = DFPattern("unit_rows", _unit_rows, _why_not_unit_rows, "relax.divide")
    return Union((Composite(SOFTMAX, softmax), Composite(UNIT_ROWS, OnlyValid(unit_rows))))


def _unit_rows() -> Any:
    x = wildcard()
    squares = is_op("relax.multiply")(x, x)
    return is_op("relax.divide")(x, is_op("relax.sqrt")(is_op("relax.sum")(squares)))


def _why_not_unit_rows(matched: list[relax.Call]) -> str | None:
    total = next(call for call in matched if op_name(call) == "relax.sum")
    if not total.attrs.keepdims or [int(axis) for axis in total.attrs.axis or ()] not in ([1], [-1]):
        return "the sum is not over rows, with its axis kept"
    return _why_not(matched)


def _why_not_softmax(call: relax.Call) -> str | None:
    return _why_not([call])


def _why_not(matched: list[relax.Call]) -> str | None:
    shape = shape_of(matched[-1].args[0])
    if shape is None or len(shape) != 2:
        return "the operand is not a matrix of static shape"
    if dtype_of(matched[-1].args[0]) != "float32":
        return f"the operand is {dtype_of(matched[-1].args[0])}, the loops are for float32"
    axis = getattr(matched[-1].attrs, "axis", None)
    return None if axis is None or int(axis) in (1, -1) else "the axis is not the last one"


def lower_to_tir(func: relax.Function) -> tirx.PrimFunc | str:
    """One PrimFunc for ``func``: softmax in loops of its own, the other kernel for the schedules of the package."""
    x = te.placeholder(extents_of(func.params[0]), "float32", "x")
    if len(func.params) > 1:
        return "an operand is a constant"
    if op_name(calls(func)[-1]) == "relax.nn.softmax":
        return _parallel_rows(te.create_prim_func([x, _softmax(x)], index_dtype_override="int64"))
    return te.create_prim_func([x, _scaled(x)], index_dtype_override="int64")


def _softmax(x: Any) -> Any:
    k, m = te.reduce_axis((0, x.shape[1]), "k"), te.reduce_axis((0, x.shape[1]), "m")
    most: Any = te.compute((x.shape[0],), lambda i: te.max(x[i, m], axis=m), "most")
    shifted: Any = te.compute(x.shape, lambda i, j: tirx.exp(x[i, j] - most[i]), "shifted")
    total: Any = te.compute((x.shape[0],), lambda i: te.sum(shifted[i, k], axis=k), "total")
    return te.compute(x.shape, lambda i, j: shifted[i, j] / total[i], "softmax")


def _scaled(x: Any) -> Any:
    k = te.reduce_axis((0, x.shape[1]), "k")
    energy: Any = te.compute((x.shape[0],), lambda i: te.sum(x[i, k] * x[i, k], axis=k), "energy")
    return te.compute(x.shape, lambda i, j: x[i, j] / tirx.sqrt(energy[i]), "scaled")


def _parallel_rows(prim: tirx.PrimFunc) -> tirx.PrimFunc:
    """``prim`` with each of its stages parallel over rows; its loops are final."""
    schedule: Any = s_tir.Schedule(IRModule({"main": prim.with_attr("global_symbol", "main")}))
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        schedule.parallel(schedule.get_loops(block)[0])
    return schedule.mod["main"].with_attr("tirx.is_scheduled", True)


IN_TIR = Backend(
    name="in_tir",
    rule=_rule,
    why_unavailable=lambda: None,
    fingerprint=lambda: f"in_tir 1.0, tvm {tvm.__version__}",
    lower_to_tir=lower_to_tir,
)
