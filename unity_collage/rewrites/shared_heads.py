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
    shared: int
    group: int

    @property
    def heads(self) -> int:
        return self.shared * self.group


_STEPS = ("relax.multiply", "relax.add", "relax.where", "relax.astype", _SOFTMAX)
"""Operators between the two products: each has one operand that is made of the first product."""


@dataclass(frozen=True, slots=True)
class _Attention:
    """Two products with a softmax between them, whose keys and values are repeated."""

    product: Call
    steps: list[tuple[Call, int]]
    """What is between the products, the last step first, each with the number of its operand that is made of scores."""
    key: _Shared
    is_turned: bool
    """Whether the product reads the keys with their last two axes swapped."""
    value: _Shared


def _of_row(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """The same for queries of one row."""
    found = _attention(call, scope)
    if not isinstance(found, _Attention):
        return found
    return _without_repeats(found, call, scope) if _number(_query(found)[2]) == 1 else None


def _of_rows(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """softmax(q @ repeated(k) * s + mask) @ repeated(v) -> the same with q in groups, and k and v as they are."""
    found = _attention(call, scope)
    return _without_repeats(found, call, scope) if isinstance(found, _Attention) else found


def _attention(call: Call, scope: Scope) -> _Attention | WhyNot | None:
    value = _shared(call.args[1], scope)
    found = None if value is None else _scores(call.args[0], scope, set())
    if value is None or found is None:
        return None
    product, steps = found
    key, is_turned = _shared_keys(product.args[1], scope)
    if key is None:
        return WhyNot("the values are repeated for several heads, and the keys are not", 3)
    attention = _Attention(product, steps, key, is_turned, value)
    why = _why_not_alike(attention) or _why_not_over_keys(attention)
    if why is None and not _same(dims_of(call.args[0]), dims_of(product)):
        why = "what is added to the scores changes their shape"
    read = [call.args[0], *(step.args[side] for step, side in steps)]
    why = why or next(filter(None, map(scope.why_not_own, read)), None)
    return attention if why is None else WhyNot(why, 3)


def _without_repeats(found: _Attention, call: Call, scope: Scope) -> Expr | WhyNot:
    """The attention with an axis for the group, which is that of the rows if there is one row."""
    key, (batch, _, rows, size) = found.key, _query(found)
    is_row = _number(rows) == 1
    heads = [batch, key.dims[1], tirx.IntImm("int64", key.group)]
    grouped = op.reshape(found.product.args[0], [*heads, size] if is_row else [*heads, rows, size])
    keys, values = (_by_heads(each, scope) if is_row else each.source for each in (key, found.value))
    rank = 4 if is_row else 5
    if found.is_turned:
        keys = op.permute_dims(keys, [*range(rank - 2), rank - 1, rank - 2])
    scores: Expr = op.matmul(grouped, keys, found.product.attrs.out_dtype)
    for step, side in reversed(found.steps):
        if op_name(step) == _SOFTMAX:
            scores = op.nn.softmax(scores, rank - 1)
            continue
        args = [
            scores if i == side else _grouped_operand(arg, key, is_row) for i, arg in enumerate(step.args)
        ]
        known = [arg for arg in args if arg is not None]
        if len(known) < len(args):
            return WhyNot(f"it is not known how an operand of {op_name(step)} varies over the heads", 3)
        scores = relax.Call(step.op, known, step.attrs)
    mixed = op.matmul(scores, values, call.attrs.out_dtype)
    return op.reshape(mixed, [batch, tirx.IntImm("int64", key.heads), rows, found.value.dims[4]])


def _query(found: _Attention) -> Dims:
    return dims_of(found.product.args[0]) or ()


def _scores(expr: Expr, scope: Scope, seen: set[Expr]) -> tuple[Call, list[tuple[Call, int]]] | None:
    """The product that scores are made of, and the steps from the last one: each with the number of its operand that
    is made of the product.

    Nothing is found through ``seen``, to which all values on the way are added.
    """
    if (product := scope.call(expr, "relax.matmul")) is not None:
        return product, []
    step = None if expr in seen else scope.call(expr, *_STEPS)
    seen.add(expr)
    if step is not None:
        for side, operand in enumerate(step.args):
            if (found := _scores(operand, scope, seen)) is not None:
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
    shared, group = _number(before[1]), _number(wide[2])
    if not shared or not group or group < 2 or _number(before[2]) != 1 or _number(after[1]) != shared * group:
        return None
    others = ((0, 0), (1, None), (3, 2), (4, 3))
    if not all(_equal(before[i], wide[i]) and (j is None or _equal(wide[i], after[j])) for i, j in others):
        return None
    return _Shared(spread.args[0], before, shared, group)


def _why_not_alike(found: _Attention) -> str | None:
    key, value, query = found.key, found.value, _query(found)
    if (key.group, key.shared) != (value.group, value.shared):
        return "keys and values are repeated differently"
    if len(query) != 4 or _number(query[1]) != key.heads:
        return f"the queries are not known to have {key.heads} heads"
    is_one_batch = _equal(query[0], key.dims[0]) and _equal(query[0], value.dims[0])
    return None if is_one_batch else "queries, keys and values have different batches"


def _why_not_over_keys(found: _Attention) -> str | None:
    softmaxes = [step for step, _ in found.steps if op_name(step) == _SOFTMAX]
    if len(softmaxes) != 1:
        return f"there are {len(softmaxes)} softmaxes between the products"
    is_last = int(softmaxes[0].attrs.axis) in (-1, rank_of(softmaxes[0]) - 1)
    return None if is_last else "the softmax is not over the keys"


def _by_heads(each: _Shared, scope: Scope) -> Expr:
    """(batch, shared, rows, columns): what the axis of one was put into, if that is known."""
    wanted = [dim for axis, dim in enumerate(each.dims) if axis != 2]
    made = scope.call(each.source, "relax.reshape", "relax.expand_dims")
    before = None if made is None else dims_of(made.args[0])
    if made is not None and _same(before, wanted):
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
    if _number(heads) is None:
        return None
    if _number(heads) == key.heads:
        split = [key.dims[1], tirx.IntImm("int64", key.group)]
    else:
        split = [heads] if is_row or not batch else [heads, heads]
    wanted = [*batch, *split, *([] if is_row and len(split) == 2 else [rows]), keys]
    return other if len(wanted) == len(dims) and len(split) == 1 else op.reshape(other, wanted)


def _number(dim: Expr) -> int | None:
    return int(dim) if isinstance(dim, tirx.IntImm) else None


def _same(a: Dims | None, b: Dims | None) -> bool:
    return a is not None and b is not None and len(a) == len(b) and all(map(_equal, a, b))


def _equal(a: Expr, b: Expr) -> bool:
    return sym.Analyzer().can_prove_equal(a, b)


SHARED_HEADS_OF_ONE_ROW = Rewrite("shared_heads_of_one_row", ("relax.matmul",), _of_row)
SHARED_HEADS = Rewrite("shared_heads", ("relax.matmul",), _of_rows)
"""Its form has five axes, and heads that repeat: the attention of cuDNN takes neither."""
