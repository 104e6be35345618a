"""The forward translation of a function: each binding by its operator's rule, else in the plain layout.

Why an operator did not follow its operands into another layout is added to ``collage.unrecognised``.
"""

from __future__ import annotations

from tvm import relax
from tvm.relax import Expr

from ..annotations import UNRECOGNISED
from ..graph.calls import op_name
from ..plan.unrecognised import Unrecognised
from ..rewrites.why_not import WhyNot
from .axes import plain
from .block import Block, all_same
from .rules import ANCHORS, RULES
from .values import Tensor, Value


def translated(func: relax.Function) -> relax.Function:
    """The function with its image operators in channels-last form, or itself when it has none."""
    if not any(_is_anchor(binding) for block in func.body.blocks for binding in block.bindings):
        return func
    kept: list[Unrecognised] = []
    blocks = [_translated_block(block, kept) for block in func.body.blocks]
    body = relax.SeqExpr(blocks, func.body.body)
    made = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)
    made = relax.analysis.remove_all_unused(made)
    if not kept:
        return made
    return UNRECOGNISED.write(made, (*(UNRECOGNISED.read(func) if UNRECOGNISED.on(func) else ()), *kept))


def _is_anchor(binding: relax.Binding) -> bool:
    return getattr(getattr(getattr(binding, "value", None), "op", None), "name", "") in ANCHORS


def _translated_block(block: relax.BindingBlock, kept: list[Unrecognised]) -> relax.BindingBlock:
    """Only dataflow blocks are rewritten: outside of them order matters. What stays for a reason goes to ``kept``."""
    if not isinstance(block, relax.DataflowBlock):
        return block
    state = Block()
    for binding in block.bindings:
        before = len(state.bindings)
        state.var = binding.var
        state.values[binding.var] = _value_of(state, binding, kept)
        if not isinstance(binding.var, relax.DataflowVar):
            _give_out(state, binding.var, before)
    return relax.DataflowBlock(state.bindings)


def _value_of(state: Block, binding: relax.Binding, kept: list[Unrecognised]) -> Value:
    value = binding.value
    if isinstance(binding, relax.MatchCast):
        return state.keep(relax.MatchCast(binding.var, state.operand(value), binding.ty))
    if isinstance(value, relax.Call):
        rule = RULES.get(getattr(value.op, "name", ""))
        moved = rule(state, value) if rule else None
        if isinstance(moved, WhyNot):
            kept.append(Unrecognised("channels_last", binding.var.name, op_name(value), moved.reason))
            moved = None
        return moved or state.keep(_with_value(binding, _plain_call(state, value)))
    if isinstance(value, relax.TupleGetItem):
        return _projected(state, binding, state.value(value))
    moved = state.value(value)
    return state.keep(_with_value(binding, state.operand(value))) if _is_plain(moved) else moved


def _projected(state: Block, binding: relax.Binding, field: Value) -> Value:
    """``var = tuple[i]``: no binding is emitted yet if the field has another layout than in the original program."""
    if not isinstance(field, Tensor):
        return state.keep(_with_value(binding, state.plain(field)))
    expr = field.forms[field.native]
    if field.is_plain and isinstance(expr, relax.TupleGetItem):
        return state.keep(_with_value(binding, expr))
    return field


def _is_plain(value: Value) -> bool:
    """Whether the value was computed in the layout of the original program."""
    return value.is_plain if isinstance(value, Tensor) else all(map(_is_plain, value.fields))


def _with_value(binding: relax.Binding, value: Expr) -> relax.Binding:
    return binding if value.same_as(binding.value) else relax.VarBinding(binding.var, value)


def _plain_call(state: Block, call: relax.Call) -> relax.Call:
    args = [state.operand(arg) for arg in call.args]
    if all_same(args, call.args):
        return call
    return relax.Call(call.op, args, call.attrs, call.ty_args, call.span, call.ty)


def _give_out(state: Block, var: relax.Var, before: int) -> None:
    """Bind the block's output ``var``, which others know by its original layout.

    When the bindings since ``before`` end with that value, the last one takes the name.
    """
    value = state.values[var]
    expr = state.plain(value)
    if expr.same_as(var):
        return
    if len(state.bindings) > before and state.bindings[-1].var.same_as(expr):
        expr = state.bindings.pop().value
    state.bindings.append(relax.VarBinding(var, expr))
    if isinstance(value, Tensor):
        value.forms[plain(value.rank)] = var
