"""Recurrent layers: all steps of a sequence in one kernel; the weights stay in the caches of the threads.

The operators are those of :mod:`unity_collage.operators`. No operator is fused behind them: operators that follow are
computed for all steps together.
"""

from __future__ import annotations

from tvm import ir, relax

from ...graph.free_sizes import is_free
from ...operators.recurrent import CELLS, cell_of
from ..native.program import NativeStep, View
from ..native.values import attrs_of, dtype_of, op_name, static_shape, why_not_sized
from ..native.views import row_major

PRIMITIVE = "recurrent"
ANCHORS = frozenset(f"relax.collage.{cell}" for cell in CELLS)
_ARGUMENTS = {"inputs": "src"}
_FUNCTIONS = ("f", "g", "h")


def recurrent(call: relax.Call) -> NativeStep | str:
    """A recurrent layer as a step, or the reason why not."""
    if op_name(call) not in ANCHORS:
        return f"{op_name(call)} is not a recurrent layer"
    cell, attrs = cell_of(call), attrs_of(call)
    operands = dict(zip(CELLS[cell].operands, call.args, strict=True))
    for what, value in (*operands.items(), ("result", call)):
        if dtype_of(value) != "float32":
            return f"{what} is {dtype_of(value) or 'of unknown dtype'}, the kernel takes float32"
        if reason := why_not_sized(what, value):
            return reason
    steps, batch, _ = static_shape(operands["inputs"])
    for name in ("state", "memory"):
        if name in operands and (other := static_shape(operands[name])[0]) != batch:
            return f"it depends on the sizes whether the batch of {name}, {other}, is that of the inputs, {batch}"
    if not isinstance(operands["weights"], ir.GenericConst):
        return "the weights are not constant, but they are packed once, when the program is loaded"
    args = [(_ARGUMENTS.get(name, name), _dense(value)) for name, value in operands.items()]
    functions = zip(_FUNCTIONS, (str(name).lower() for name in attrs["activations"]), strict=False)
    flags = {key: int(attrs[key]) for key in ("reverse", "resets_first") if key in attrs}
    step = NativeStep(PRIMITIVE, (*args, ("dst", _dense(call))), (("cell", cell), *functions, *flags.items()))
    # A sequence without steps still has a result: the row of the memory.
    keeps_memory = static_shape(call)[0] != steps
    return step.with_attrs(may_be_empty="src") if is_free(steps) and keeps_memory else step


def checked(step: NativeStep | str) -> NativeStep | str:
    """The step if the kernel can address its tensors, or the reason why not."""
    if isinstance(step, str):
        return step
    for name, view in step.args:
        if view.dtype != "float32":
            return f"{name} is {view.dtype}, the kernel takes float32"
        if name != "weights" and view.dims[-1] != 1 and view.strides[-1] != 1:
            return f"the numbers of a row of {name} are not neighbours"
    return step


def _dense(value: relax.Expr) -> View:
    return View(value, static_shape(value), row_major(static_shape(value)), "float32")
