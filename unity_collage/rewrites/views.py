"""views: chains of reshapes and of permutations become one of each.

Normal form: ``reshape`` replaces every operator that only changes the shape (to the VM it is a view).
``permute_dims`` is left where data really moves. Unit axes are not carried through a permutation. Rows of a product
have the shape of its result.
"""

from __future__ import annotations

from .rewrite import Rewrite
from .scope import Call, Expr, Scope, op, op_name, rank_of, static_shape
from .why_not import WhyNot, is_no, shape_text

_RESHAPES = ("relax.expand_dims", "relax.squeeze", "relax.flatten", "relax.nn.batch_flatten")


def permutation(call: Call) -> list[int]:
    """The axes of a ``permute_dims``: output axis ``i`` is input axis ``axes[i]``."""
    rank = rank_of(call)
    axes = call.attrs.axes
    return [int(axis) % rank for axis in axes] if axes is not None else list(range(rank))[::-1]


def _as_reshape(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """expand_dims, squeeze, flatten -> reshape to the static shape they give."""
    shape = static_shape(call)
    return _unknown(call) if shape is None else op.reshape(call.args[0], shape)


def _unknown(call: Expr, matched: int = 1) -> WhyNot:
    return WhyNot(
        f"the shape of {op_name(call).removeprefix('relax.')} or of its operand is not known", matched
    )


def _merge_reshapes(call: Call, scope: Scope) -> Expr | None:
    """reshape(reshape(x, a), b) -> reshape(x, b)."""
    inner = scope.call(call.args[0], "relax.reshape")
    if inner is None:
        return None
    return op.reshape(inner.args[0], call.args[1])


def _merge_permutes(call: Call, scope: Scope) -> Expr | None:
    """permute_dims(permute_dims(x, a), b) -> permute_dims(x, [a[i] for i in b])."""
    inner = scope.call(call.args[0], "relax.permute_dims")
    if inner is None:
        return None
    first = permutation(inner)
    return op.permute_dims(inner.args[0], [first[axis] for axis in permutation(call)])


def _permute_as_reshape(call: Call, scope: Scope) -> Expr | None:
    """A permutation that moves axes of size 1 only -> reshape."""
    before, after = static_shape(call.args[0]), static_shape(call)
    if before is None or after is None:
        return None
    moved = [axis for axis in permutation(call) if before[axis] != 1]
    return op.reshape(call.args[0], after) if moved == sorted(moved) else None


def _unit_axes_first(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """reshape(permute_dims(x)) that only drops axes of size 1 -> permute_dims(reshape(x))."""
    inner = scope.call(call.args[0], "relax.permute_dims")
    if inner is None:
        return None
    before, after = static_shape(inner), static_shape(call)
    if before is None or after is None:
        return _unknown(call, 2)
    dropped = _dropped_unit_axes(before, after)
    shared = None if dropped is None else scope.why_not_own(call.args[0])
    if dropped is None or shared is not None:
        return None if shared is None else WhyNot(shared, 2)
    axes = permutation(inner)
    gone = {axes[axis] for axis in dropped}
    kept = [axis for axis in range(len(axes)) if axis not in gone]
    source_shape = static_shape(inner.args[0])
    assert source_shape is not None, "a permutation of a static shape has a static operand"
    source = op.reshape(inner.args[0], [source_shape[axis] for axis in kept])
    return op.permute_dims(source, [kept.index(axis) for axis in axes if axis not in gone])


def _dropped_unit_axes(before: tuple[int, ...], after: tuple[int, ...]) -> list[int] | None:
    """The axes of size 1 to leave out of ``before`` to get ``after``, if the shapes differ only in them."""
    dropped, position = [], 0
    for axis, size in enumerate(before):
        if position < len(after) and after[position] == size:
            position += 1
        elif size == 1:
            dropped.append(axis)
        else:
            return None
    return dropped if dropped and position == len(after) else None


def _unit_axes_stay(call: Call, scope: Scope) -> Expr | None:
    """A permutation that carries axes of size 1 along -> one that leaves them, after a reshape.

    A shape like (197, 1, 6, 64) does not show which of several unit axes is the batch. So all equivalent forms become
    the one in which each unit axis is where the result has it.
    """
    before, after = static_shape(call.args[0]), static_shape(call)
    axes = permutation(call)
    if before is None or after is None:
        return None
    stay = [position for position, size in enumerate(after) if size == 1]
    if all(axes[position] == position for position in stay):
        return None
    order = iter([axis for axis, size in enumerate(before) if size != 1])
    places = [-1 if position in stay else next(order) for position in range(len(after))]
    shape = [1 if place < 0 else before[place] for place in places]
    moved = [position if position in stay else places.index(axes[position]) for position in range(len(after))]
    return op.permute_dims(op.reshape(call.args[0], shape), moved)


def _rows_before_product(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """reshape(matmul(reshape(x), w) + bias), of the rows only -> matmul(reshape(x), w) + bias.

    Then the operators after the product have the shape of its result, and may be in its kernel. The two reshapes
    become one, or none.
    """
    before, after = static_shape(call.args[0]), static_shape(call)
    if before is None or after is None or len(after) < 2 or before[-1:] != after[-1:]:
        return None
    rows = after[:-1]
    product = _product_of_rows(call.args[0], rows, scope)
    if product is not None:
        return product
    total = scope.call(call.args[0], "relax.add")
    product = None if total is None else _product_of_rows(total.args[0], rows, scope)
    if total is None or is_no(product):
        return product
    summand = static_shape(total.args[1])
    if summand not in ((), after[-1:]):
        return WhyNot(
            f"the summand of matmul has the shape {shape_text(summand)}, not one value for each column", 3
        )
    shared = scope.why_not_own(call.args[0])
    return op.add(product, total.args[1]) if shared is None else WhyNot(shared, 3)


def _product_of_rows(value: Expr, rows: tuple[int, ...], scope: Scope) -> Expr | WhyNot | None:
    """``value``, a product of reshaped rows and a matrix that nothing else reads, with its rows in another shape."""
    product = scope.call(value, "relax.matmul")
    if product is None or scope.call(product.args[0], "relax.reshape") is None:
        return None
    source, matrix = (static_shape(arg) for arg in product.args)
    if source is None or matrix is None:
        return _unknown(product, 2)
    if len(matrix) != 2:
        return None
    shared = scope.why_not_own(value)
    if shared is not None:
        return WhyNot(shared, 2)
    reshaped = op.reshape(product.args[0], [*rows, source[-1]])
    return op.matmul(reshaped, product.args[1], product.attrs.out_dtype)


RESHAPE_FORM = Rewrite("reshape_form", _RESHAPES, _as_reshape)
MERGE_RESHAPES = Rewrite("merge_reshapes", ("relax.reshape",), _merge_reshapes)
ROWS_BEFORE_PRODUCT = Rewrite("rows_before_product", ("relax.reshape",), _rows_before_product)
MERGE_PERMUTES = Rewrite("merge_permutes", ("relax.permute_dims",), _merge_permutes)
PERMUTE_AS_RESHAPE = Rewrite("permute_as_reshape", ("relax.permute_dims",), _permute_as_reshape)
UNIT_AXES_FIRST = Rewrite("unit_axes_first", ("relax.reshape",), _unit_axes_first)
UNIT_AXES_STAY = Rewrite("unit_axes_stay", ("relax.permute_dims",), _unit_axes_stay)
