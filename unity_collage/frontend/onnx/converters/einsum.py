"""Einsum: sums of products by the names of axes, as products of matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tvm import relax, te

from ..equal_sizes import require_equal, require_shape
from ..node import Converted, OnnxNode
from ..symbolic import are_equal
from ..values import Dim
from .precise import narrowed, rank_of, widened
from .runtime_shapes import computed, product


@dataclass(frozen=True, slots=True)
class _Term:
    """A tensor with a name for each axis."""

    x: relax.Expr
    names: tuple[str, ...]

    def sizes(self, node: OnnxNode) -> dict[str, Dim]:
        return dict(zip(self.names, node.dims(self.x), strict=True))


def _einsum(node: OnnxNode) -> Converted:
    """Terms are joined from left to right, and summed over an axis as soon as no later term needs it."""
    operands = [widened(node, x) for x in node.operands()]
    inputs, output = _parsed(node, node.required("equation"), [rank_of(x) for x in operands])
    terms = [_diagonal(node, _Term(x, names)) for x, names in zip(operands, inputs, strict=True)]
    terms = _of_common_sizes(node, terms)
    found = terms[0]
    for n, term in enumerate(terms[1:], 1):
        needed = {*output, *(name for other in terms[n + 1 :] for name in other.names)}
        found = _joined(node, found, term, needed)
    found = _summed(node, found, set(output))
    order = [found.names.index(name) for name in output]
    result = found.x if order == list(range(len(order))) else relax.op.permute_dims(found.x, order)
    return narrowed(node, result, node.dtype())


def _parsed(
    node: OnnxNode, equation: str, ranks: Sequence[int]
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The names of the axes of operands and result; the axes of an ellipsis are called 0, 1, ... from the right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    sides = left.split(",")
    if len(sides) != len(ranks):
        node.refuse(f"the equation {equation!r} is for {len(sides)} operands, and there are {len(ranks)}")
    inputs = [_names(node, side, rank) for side, rank in zip(sides, ranks, strict=True)]
    width = max((len([name for name in names if name.isdigit()]) for names in inputs), default=0)
    dots = tuple(str(n) for n in reversed(range(width)))
    if not arrow:
        letters = sorted(name for name in set(left) if name.isalpha() and left.count(name) == 1)
        return inputs, (*dots, *letters)
    before, ellipsis, after = right.partition("...")
    return inputs, (*before, *(dots if ellipsis else ()), *after)


def _names(node: OnnxNode, side: str, rank: int) -> tuple[str, ...]:
    before, ellipsis, after = side.partition("...")
    width = rank - len(before) - len(after)
    if width < 0 or (width and not ellipsis):
        node.refuse(f"the term {side!r} of the equation does not name the axes of a tensor of rank {rank}")
    return (*before, *(str(n) for n in reversed(range(width))), *after)


def _diagonal(node: OnnxNode, term: _Term) -> _Term:
    """Axes of the same name become one: their diagonal."""
    names = tuple(dict.fromkeys(term.names))
    if names == term.names:
        return term
    dims = node.dims(term.x)
    require_shape(node, "an operand", dims, [dims[term.names.index(name)] for name in term.names])

    def kernel(x: te.Tensor) -> te.Tensor:
        shape = [x.shape[term.names.index(name)] for name in names]
        return te.compute(
            shape, lambda *place: x(*(place[names.index(name)] for name in term.names)), name="diagonal"
        )

    return _Term(computed(node, kernel, term.x), names)


def _of_common_sizes(node: OnnxNode, terms: Sequence[_Term]) -> list[_Term]:
    """Axes of one letter have one size; where only the program knows whether they do, it compares them.

    Axes of an ellipsis may be broadcast, and so may those of one element.
    """
    common: dict[str, Dim] = {}
    for term in terms:
        for name, size in term.sizes(node).items():
            if name.isalpha() and not _is_one(size) and not isinstance(common.get(name), int):
                common[name] = size if isinstance(size, int) else common.get(name, size)
    found = []
    for term in terms:
        sizes = list(term.sizes(node).items())
        wanted = [size if _is_one(size) else common.get(name, size) for name, size in sizes]
        pairs = [(size, want) for (_, size), want in zip(sizes, wanted, strict=True)]
        if all(are_equal(*pair) is not None for pair in pairs):
            found.append(term)
            continue
        require_equal(node, pairs)
        found.append(_Term(node.reshaped(term.x, wanted), term.names))
    return found


def _is_one(size: Dim) -> bool:
    return isinstance(size, int) and size == 1


def _summed(node: OnnxNode, term: _Term, needed: set[str]) -> _Term:
    """Without the axes that nothing needs."""
    axes = [axis for axis, name in enumerate(term.names) if name not in needed]
    if not axes:
        return term
    names = tuple(name for name in term.names if name in needed)
    return _Term(node.emit(relax.op.sum(term.x, axes)), names)


def _joined(node: OnnxNode, a: _Term, b: _Term, needed: set[str]) -> _Term:
    """The product of two terms, summed over what only they have: a product of matrices, or of elements."""
    a = _summed(node, a, needed | set(b.names))
    b = _summed(node, b, needed | set(a.names))
    a, b = _without_units(node, a, b, needed), _without_units(node, b, a, needed)
    shared = [name for name in a.names if name in b.names]
    batch = [name for name in shared if name in needed]
    inner = [name for name in shared if name not in needed]
    rows = [name for name in a.names if name not in b.names]
    columns = [name for name in b.names if name not in a.names]
    sizes = {**b.sizes(node), **a.sizes(node)}
    if not inner:
        return _multiplied(node, a, b, [*batch, *rows, *columns])
    left = _as_matrices(node, a, batch, rows, inner)
    right = _as_matrices(node, b, batch, inner, columns)
    made = node.emit(relax.op.matmul(left, right))
    shape = [*node.dims(made)[: len(batch)], *(sizes[name] for name in (*rows, *columns))]
    names = (*batch, *rows, *columns)
    return _Term(
        made if len(names) == rank_of(made) and _is_plain(rows, columns) else node.reshaped(made, shape),
        names,
    )


def _is_plain(rows: Sequence[str], columns: Sequence[str]) -> bool:
    return len(rows) == len(columns) == 1


def _without_units(node: OnnxNode, a: _Term, b: _Term, needed: set[str]) -> _Term:
    """Sum over an axis that both have, if in the other term it has one element, which is repeated."""
    sizes, others = a.sizes(node), b.sizes(node)
    unequal = {
        name for name in a.names if name in others and name not in needed and 1 in (sizes[name], others[name])
    }
    return _summed(node, a, set(a.names) - unequal)


def _multiplied(node: OnnxNode, a: _Term, b: _Term, names: Sequence[str]) -> _Term:
    product_of = relax.op.multiply(_aligned(node, a, names), _aligned(node, b, names))
    return _Term(node.emit(product_of), tuple(names))


def _aligned(node: OnnxNode, term: _Term, names: Sequence[str]) -> relax.Expr:
    """With the axes ``names``; those that the term lacks have one element."""
    sizes = term.sizes(node)
    x = _permuted(node, term, [name for name in names if name in sizes])
    return node.reshaped(x, [sizes.get(name, 1) for name in names])


def _as_matrices(
    node: OnnxNode, term: _Term, batch: Sequence[str], rows: Sequence[str], columns: Sequence[str]
) -> relax.Expr:
    """With the axes of a batch as they are, and the others gathered to two."""
    sizes = term.sizes(node)
    x = _permuted(node, term, [*batch, *rows, *columns])
    if len(rows) == len(columns) == 1:
        return x
    gathered = [product([sizes[name] for name in names]) for names in (rows, columns)]
    return node.reshaped(x, [*(sizes[name] for name in batch), *gathered])


def _permuted(node: OnnxNode, term: _Term, names: Sequence[str]) -> relax.Expr:
    order = [term.names.index(name) for name in names]
    if order == list(range(len(order))):
        return term.x
    return node.emit(relax.op.permute_dims(term.x, order))


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"Einsum": _einsum}
