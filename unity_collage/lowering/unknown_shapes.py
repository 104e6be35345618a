"""Refuses operators without a kernel in TVM, because the shape of an operand or of the result is not known."""

from __future__ import annotations

from collections.abc import Iterator

from tvm import ir, relax
from tvm.ir import IRModule

from ..errors import CollageError
from ..graph.calls import op_name


def refuse_unknown_shapes(mod: IRModule) -> None:
    """Raises CollageError with the first such operator of ``mod``, in one line."""
    for gvar, func in mod.functions_items():
        if isinstance(func, relax.Function):
            for name, call in _named_calls(func.body):
                if reason := why_no_kernel(call):
                    raise CollageError(
                        f"{op_name(call)} ({name} of {gvar.name_hint}) has no kernel: {reason}"
                    )


def why_no_kernel(call: relax.Call) -> str | None:
    """Why TVM has no kernel for a call of an operator that becomes a kernel, or None."""
    if not isinstance(call.op, ir.Op) or call.op.get_attr("FLegalize") is None:
        return None
    if call.op.get_attr("RequiresArgumentShapes") in (False, 0):  # None: it does
        return None
    if what := next((_name(arg) for arg in call.args if _is_unknown(arg.ty)), None):
        return f"the shape of {what} is not known; give it one with match_cast"
    if _is_unknown(call.ty) and not call.op.get_attr("FDataDependent"):
        shapes = " and ".join(
            _shape_text(arg.ty) for arg in call.args if isinstance(arg.ty, relax.TensorType)
        )
        return f"the shape of its result does not follow from those of its operands, {shapes}"
    return None


def _is_unknown(ty: ir.Type) -> bool:
    if isinstance(ty, relax.TupleType):
        return any(_is_unknown(field) for field in ty.fields)
    return isinstance(ty, relax.TensorType) and not isinstance(ty.shape, relax.ShapeExpr)


def _shape_text(ty: relax.TensorType) -> str:
    assert isinstance(ty.shape, relax.ShapeExpr)
    return f"({', '.join(map(str, ty.shape.values))})"


def _name(arg: relax.Expr) -> str:
    return arg.name if isinstance(arg, relax.Var) else "an operand"


def _named_calls(body: relax.Expr) -> Iterator[tuple[str, relax.Call]]:
    """The calls below ``body``, those of branches included, with the variables that they are bound to."""
    for block in body.blocks if isinstance(body, relax.SeqExpr) else ():
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call):
                yield binding.var.name, binding.value
            elif isinstance(binding.value, relax.If):
                yield from _named_calls(binding.value.true_branch)
                yield from _named_calls(binding.value.false_branch)
