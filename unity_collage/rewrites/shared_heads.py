"""shared_heads: keys and values that several heads of queries share are not repeated.

Normal form: such heads have an axis of their own, (batch, shared, group, rows, keys), along which keys and values are
broadcast. A single row has no such axis: the queries of a group are the rows of one head then, so that its keys are
read once. Ainslie et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax, sym, tirx

from .rewrite import Rewrite
from .scope import Call, Expr, Scope, dims_of, op, op_name, rank_of
from .why_not import WhyNot

Dims = Sequence[Expr]

_SOFTMAX = "relax.nn.softmax"


@dataclass(frozen=True, slots=True)
class _Shared:
    """(batch, shared, 1, rows, columns) that is repeated ``group`` times along its third axis."""

    source: Expr
    dims: Dims
    group: int

    @property
    def heads(self) -> int:
        return int(self.dims[1]) * self.group


_STEPS = ("relax.multiply", "relax.add", "relax.where", "relax.astype", _SOFTMAX)
"""Operators between the two products: each has one operand that is made of the first product."""


def _without_repeats(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """softmax(q @ repeated(k) * s + mask) @ repeated(v) -> the same with q in groups, and k and v as they are."""
    value = _shared(call.args[1], scope)
    found = None if value is None else _scores(call.args[0], scope)
    if value is None or found is None:
        return None
    product, steps = found
    key, is_turned = _shared_keys(product.args[1], scope)
    query = dims_of(product.args[0])
    if key is None or query is None or len(query) != 4:
        return WhyNot("the values are repeated for several heads, and the keys are not", 3)
    softmax = next((step for step, _ in steps if op_name(step) == _SOFTMAX), None)
    if softmax is None:
        return None
    why = _why_not_alike(key, value, query) or _why_not_over_keys(softmax, product)
    read = [call.args[0], *(step.args[side] for step, side in steps)]
    why = why or next(filter(None, map(scope.why_not_own, read)), None)
    if why is not None:
        return WhyNot(why, 3)
    batch, _, rows, size = query
    is_row = _is_one(rows)
    heads = [batch, key.dims[1], tirx.IntImm("int64", key.group)]
    grouped = op.reshape(product.args[0], [*heads, size] if is_row else [*heads, rows, size])
    keys, values = (_by_heads(each, scope) if is_row else each.source for each in (key, value))
    rank = 4 if is_row else 5
    if is_turned:
        keys = op.permute_dims(keys, [*range(rank - 2), rank - 1, rank - 2])
    scores: Expr = op.matmul(grouped, keys, product.attrs.out_dtype)
    for step, side in reversed(steps):
        if op_name(step) == _SOFTMAX:
            scores = op.nn.softmax(scores, rank - 1)
            continue
        args = [scores if i == side else _grouped_operand(arg, key, is_row) for i, arg in enumerate(step.args)]
        if None in args:
            return WhyNot(f"it is not known how an operand of {op_name(step)} varies over the heads", 3)
        scores = relax.Call(step.op, args, step.attrs)
    mixed = op.matmul(scores, values, call.attrs.out_dtype)
    return op.reshape(mixed, [batch, tirx.IntImm("int64", key.heads), rows, value.dims[4]])


def _scores(expr: Expr, scope: Scope) -> tuple[Call, list[tuple[Call, int]]] | None:
    """The product that scores are made of, and the steps from the last one: each with the number of its operand that
    is made of the product.
    """
    if (product := scope.call(expr, "relax.matmul")) is not None:
        return product, []
    step = scope.call(expr, *_STEPS)
    if step is not None:
        for side, operand in enumerate(step.args):
            if (found := _scores(operand, scope)) is not None:
                return found[0], [(step, side), *found[1]]
    return None


def _shared_keys(expr: Expr, scope: Scope) -> tuple[_Shared | None, bool]:
    """The keys of a product, and whether it reads them with their last two axes swapped."""
    turned = scope.call(expr, "relax.permute_dims")
    if (
        turned is not None
        and turned.attrs.axes is not None
        and [*map(int, turned.attrs.axes)] == [0, 1, 3, 2]
    ):
        return _shared(turned.args[0], scope), True
    return _shared(expr, scope), False


def _shared(expr: Expr, scope: Scope) -> _Shared | None:
    """What is repeated for several heads: reshape(broadcast_to(x)) that joins the second axis and the third."""
    joined = scope.call(expr, "relax.reshape")
    spread = None if joined is None else scope.call(joined.args[0], "relax.broadcast_to")
    if joined is None or spread is None:
        return None
    before, wide, after = dims_of(spread.args[0]), dims_of(spread), dims_of(joined)
    if before is None or wide is None or after is None or (len(before), len(after)) != (5, 4):
        return None
    counts = before[1], wide[2], after[1]
    is_joined = all(isinstance(count, tirx.IntImm) for count in counts) and _is_one(before[2])
    if not is_joined or int(wide[2]) < 2 or int(after[1]) != int(before[1]) * int(wide[2]):
        return None
    others = ((0, 0), (1, None), (3, 2), (4, 3))
    if not all(_equal(before[i], wide[i]) and (j is None or _equal(wide[i], after[j])) for i, j in others):
        return None
    return _Shared(spread.args[0], before, int(wide[2]))


def _why_not_alike(key: _Shared, value: _Shared, query: Dims) -> str | None:
    if (key.group, int(key.dims[1])) != (value.group, int(value.dims[1])):
        return "keys and values are repeated differently"
    if not isinstance(query[1], tirx.IntImm) or int(query[1]) != key.heads:
        return f"there are {query[1]} heads of queries and {key.heads} of keys"
    return None if _equal(query[0], key.dims[0]) else "queries and keys have different batches"


def _why_not_over_keys(softmax: Call, product: Call) -> str | None:
    """Why the softmax is not one of scores as the product has them: what is added may change their shape."""
    if int(softmax.attrs.axis) not in (-1, rank_of(softmax) - 1):
        return "the softmax is not over the keys"
    scores, found = dims_of(product), dims_of(softmax)
    if scores is None or found is None or len(scores) != len(found) or not all(map(_equal, scores, found)):
        return "what is added to the scores changes their shape"
    return None


def _by_heads(each: _Shared, scope: Scope) -> Expr:
    """(batch, shared, rows, columns): what the axis of one was put into, if that is known."""
    wanted = [dim for axis, dim in enumerate(each.dims) if axis != 2]
    made = scope.call(each.source, "relax.reshape", "relax.expand_dims")
    before = None if made is None else dims_of(made.args[0])
    if made is not None and before is not None and len(before) == 4 and all(map(_equal, before, wanted)):
        return made.args[0]
    return op.reshape(each.source, wanted)


def _grouped_operand(other: Expr, key: _Shared, is_row: bool) -> Expr | None:
    """A summand or factor of the scores (batch, heads, rows, keys) as one of scores in groups; None if it cannot be."""
    dims = dims_of(other)
    if dims is None or len(dims) > 4:
        return None
    if len(dims) < 3:
        return other
    *batch, heads, rows, keys = dims
    if not isinstance(heads, tirx.IntImm):
        return None
    if int(heads) == key.heads:
        split = [key.dims[1], tirx.IntImm("int64", key.group)]
    else:
        split = [heads] if is_row or not batch else [heads, heads]
    wanted = [*batch, *split, *([] if is_row and len(split) == 2 else [rows]), keys]
    return other if len(wanted) == len(dims) and len(split) == 1 else op.reshape(other, wanted)


def _is_one(dim: Expr) -> bool:
    return isinstance(dim, tirx.IntImm) and int(dim) == 1


def _equal(a: Expr, b: Expr) -> bool:
    return sym.Analyzer().can_prove_equal(a, b)


SHARED_HEADS = Rewrite("shared_heads", ("relax.matmul",), _without_repeats)
