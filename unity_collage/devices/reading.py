"""Reads single calls and functions for a plan: special operators, and small predicates of operands."""

from __future__ import annotations

from tvm import ir, relax

from ..annotations import FREELY_PLACED
from ..graph.calls import op_name
from .trees import tensors

HINT, COPY = "relax.hint_on_device", "relax.to_vdevice"
"""The operators that place their result."""

KERNEL_CALLS = ("relax.call_tir", "relax.call_tir_inplace", "relax.call_tir_with_grad")
"""Calls of PrimFuncs, whose operands are one tuple."""

READ_BY_HOST = ("relax.tensor_to_shape", "relax.assert_op")
"""Operators whose first operand is read by the host."""

MADE_BY_HOST = ("relax.shape_to_tensor",)
"""Operators whose result the host writes."""

ANYWHERE = ("relax.print", "relax.shape_of")
"""Operators that take operands of any device."""


def free_parts(func: relax.Function) -> dict[str, tuple[int, tuple[str, ...]]]:
    """By name of a value: its place in an earlier plan, and the parts of it that were chosen by default."""
    if not FREELY_PLACED.on(func):
        return {}
    return {name: (group.on, group.free) for group in FREELY_PLACED.read(func) for name in group.values}


def callee_name(callee: relax.Expr) -> str:
    """The name of a function that is called."""
    return callee.name_hint if isinstance(callee, relax.GlobalVar) else str(callee)


def same_device(ty: ir.Type, device: relax.VDevice) -> bool:
    """Whether a copy from ``ty`` to ``device`` changes the scope alone."""
    own = [tensor.vdevice for tensor in tensors(ty)]
    return any(
        each is not None
        and (str(each.target), int(each.vdevice_id)) == (str(device.target), int(device.vdevice_id))
        for each in own
    )


def has_type(expr: relax.Expr) -> bool:
    """Whether an operand is a value with a type."""
    return not isinstance(expr, (relax.GlobalVar, relax.ExternFunc, ir.Op)) and not expr.ty.is_missing()


def shown(call: relax.Call) -> str:
    """The name of a call in messages: ``R.add``."""
    name = op_name(call)
    return "R." + name.removeprefix("relax.") if name else "the call"
