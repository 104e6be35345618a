"""Constants of one element inside of kernels: TVM's fusion accepts numbers in a kernel, but no tensors.

Legalization writes the number of a constant without axes into the loops of an arithmetic operator. All others stay
tensors, and ``FuseTIR`` refuses them in a function that becomes one kernel. ``full`` of the number is an ordinary
loop, and fusion reduces it to the number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tvm import ir, relax

from ..rewrites.bindings import with_blocks
from ..rewrites.constants import constant

_TAKES_NUMBERS = frozenset(
    f"relax.{name}"
    for name in (
        "add",
        "divide",
        "equal",
        "floor_divide",
        "full",
        "greater",
        "greater_equal",
        "less",
        "less_equal",
        "maximum",
        "minimum",
        "multiply",
        "not_equal",
        "power",
        "subtract",
        "where",
    )
)
"""Operators that become loops with the numbers of their constants without axes."""


def with_filled_constants(func: relax.Function) -> relax.Function:
    """``func`` with ``full`` in place of each constant of one element that legalization would leave a tensor."""
    if not any(_tensors(binding) for block in func.body.blocks for binding in block.bindings):
        return func
    return with_blocks(func, _filled)


def _tensors(binding: relax.Binding) -> list[ir.GenericConst]:
    """The constants of one element that the operator of a binding reads as tensors."""
    if not isinstance(binding, relax.VarBinding) or not isinstance(binding.value, relax.Call):
        return []
    call = binding.value
    takes_numbers = isinstance(call.op, ir.Op) and call.op.name in _TAKES_NUMBERS
    return [
        leaf
        for leaf in _leaves(call.args)
        if isinstance(leaf, ir.GenericConst) and _is_one(leaf) and (leaf.value.shape or not takes_numbers)
    ]


def _leaves(args: Iterable[relax.Expr]) -> Iterator[relax.Expr]:
    for arg in args:
        yield from _leaves(arg.fields) if isinstance(arg, relax.Tuple) else (arg,)


def _is_one(value: ir.GenericConst) -> bool:
    return all(int(extent) == 1 for extent in value.value.shape)


def _filled(block: relax.BindingBlock) -> Iterator[relax.Binding]:
    made = relax.DataflowVar if isinstance(block, relax.DataflowBlock) else relax.Var
    for binding in block.bindings:
        known: list[tuple[ir.GenericConst, relax.Var]] = []
        for tensor in _tensors(binding):
            array = tensor.value.numpy()
            var = made("full", tensor.ty)
            known.append((tensor, var))
            number = constant(array.reshape(()))
            yield relax.VarBinding(var, relax.op.full(relax.ShapeExpr(array.shape), number, str(array.dtype)))
        yield relax.VarBinding(binding.var, _with(binding.value, known)) if known else binding


def _with(value: relax.Expr, known: list[tuple[ir.GenericConst, relax.Var]]) -> relax.Expr:
    if isinstance(value, relax.Call):
        args = [_with(arg, known) for arg in value.args]
        return relax.Call(value.op, args, value.attrs, value.ty_args)
    if isinstance(value, relax.Tuple):
        return relax.Tuple([_with(field, known) for field in value.fields])
    return next((var for tensor, var in known if tensor.same_as(value)), value)
