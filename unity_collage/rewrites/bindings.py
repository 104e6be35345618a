"""Reading and rebuilding single bindings: what they use, which are live, their operands replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tvm import ir, relax

from .scope import Expr


def operands(value: Expr) -> Iterator[relax.Var]:
    """The variables that ``value`` mentions, repeats included."""
    if isinstance(value, relax.Var):
        yield value
    elif isinstance(value, relax.Tuple):
        yield from _of_all(value.fields)
    elif isinstance(value, relax.TupleGetItem):
        yield from operands(value.tuple_value)
    elif isinstance(value, relax.Call):
        yield from operands(value.op)
        yield from _of_all(value.args)


def _of_all(values: Iterable[Expr]) -> Iterator[relax.Var]:
    for value in values:
        yield from operands(value)


def live(bindings: Sequence[relax.Binding]) -> list[relax.Binding]:
    """The bindings of a dataflow block that its outputs need.

    A ``match_cast`` always stays: it checks its operand, and defines symbolic dimensions.
    """
    needed: set[relax.Var] = set()
    kept: list[relax.Binding] = []
    for binding in reversed(bindings):
        inner = isinstance(binding, relax.VarBinding) and isinstance(binding.var, relax.DataflowVar)
        if inner and binding.var not in needed:
            continue
        needed.update(operands(binding.value))
        kept.append(binding)
    return kept[::-1]


def map_operands(expr: Expr, mapped: Callable[[Expr], Expr], builder: relax.BlockBuilder) -> Expr:
    """``expr`` with each operand replaced by ``mapped(operand)``, and its type inferred again."""
    if isinstance(expr, relax.Tuple):
        fields = [mapped(field) for field in expr.fields]
        return expr if _same(fields, expr.fields) else builder.normalize(relax.Tuple(fields))
    if isinstance(expr, relax.TupleGetItem):
        source = mapped(expr.tuple_value)
        same = source.same_as(expr.tuple_value)
        return expr if same else builder.normalize(relax.TupleGetItem(source, expr.index))
    assert isinstance(expr, relax.Call)
    args = [mapped(arg) for arg in expr.args]
    op = mapped(expr.op) if isinstance(expr.op, relax.Var) else expr.op
    if _same(args, expr.args) and op.same_as(expr.op) and not expr.ty.is_missing():
        return expr
    return builder.normalize(relax.Call(op, args, expr.attrs, expr.ty_args, expr.span))


def _same(new: Sequence[Expr], old: Sequence[Expr]) -> bool:
    return all(a.same_as(b) for a, b in zip(new, old, strict=True))


def is_visible_outside(leaf: Expr) -> bool:
    """Whether other blocks may mention ``leaf``: an output or parameter, or a constant."""
    return isinstance(leaf, (relax.Var, ir.GenericConst)) and not isinstance(leaf, relax.DataflowVar)


def substituted(func: relax.Function, renamed: Mapping[relax.Var, Expr]) -> relax.Function:
    """``func`` with variables of its blocks replaced wherever they are read, nested scopes included."""
    if not renamed:
        return func
    of_those = relax.Function(list(renamed), func.body, func.ret_ty, is_pure=False)
    bound = of_those.bind_params(dict(renamed)).body
    body = relax.SeqExpr(bound.blocks, bound.body)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)


def with_blocks(
    func: relax.Function, bindings_of: Callable[[relax.BindingBlock], Iterator[relax.Binding]]
) -> relax.Function:
    """``func`` with the bindings that ``bindings_of`` returns for each block, normalised again."""
    blocks = [type(block)(list(bindings_of(block))) for block in func.body.blocks]
    body = relax.SeqExpr(blocks, func.body.body)
    new = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)
    return relax.BlockBuilder().normalize(new)
