"""Results of packed functions that change an operand in place: other names of the operand.

TVM's planner of memory does not know that such a result is in the memory of the operand. It would give that memory to
another value as soon as nothing reads the operand itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm import ir, relax
from tvm.ir import IRModule

from ..graph.calls import op_name
from ..rewrites.bindings import with_blocks

_IN_PLACE = "relax.call_inplace_packed"


def with_changed_operands(mod: IRModule) -> IRModule:
    """``mod`` where operands that packed functions change stand for the results in their memory.

    before: ``b = R.call_inplace_packed("f", a, inplace_indices=[0])``   after: the same call, then ``b = a``
    """
    functions: dict[ir.GlobalVar, ir.BaseFunc] = {
        gvar: with_blocks(func, _renamed) if isinstance(func, relax.Function) and _calls(func) else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _calls(func: relax.Function) -> bool:
    return any(
        op_name(binding.value) == _IN_PLACE for block in func.body.blocks for binding in block.bindings
    )


def _renamed(block: relax.BindingBlock) -> Iterator[relax.Binding]:
    kind = relax.DataflowVar if isinstance(block, relax.DataflowBlock) else relax.Var
    for binding in block.bindings:
        call = binding.value
        if not isinstance(call, relax.Call) or op_name(call) != _IN_PLACE:
            yield binding
            continue
        changed = kind("changed", call.ty)
        yield relax.VarBinding(changed, call)
        yield relax.VarBinding(binding.var, _result(call, changed))


def _result(call: relax.Call, changed: relax.Var) -> relax.Expr:
    """The result of ``call``, which is bound to ``changed``, with tensors that are operands by their own names."""
    places = [int(place) for place in call.attrs.inplace_indices]
    if not isinstance(call.ty, relax.TupleType):
        return _field(call, places[0], call.ty, changed)
    fields = enumerate(zip(places, call.ty.fields, strict=True))
    return relax.Tuple(
        [_field(call, place, ty, relax.TupleGetItem(changed, number)) for number, (place, ty) in fields]
    )


def _field(call: relax.Call, place: int, ty: ir.Type, made: relax.Expr) -> relax.Expr:
    """The operand at ``place``, from 0 on, if it is a tensor, as the result is; else ``made``."""
    operand = call.args[1 + place] if place >= 0 else made
    is_tensor = isinstance(operand.ty, relax.TensorType) and isinstance(ty, relax.TensorType)
    return operand if place >= 0 and is_tensor else made
