"""Which keys a query of an attention sees, as numbers that are added to the scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import ir, relax, te, tirx

from ..node import OnnxNode
from ..symbolic import are_equal
from ..values import Dim
from .precise import dtype_of, wide_type

_MOST_KNOWN = 1 << 22
"""The most elements of a bias that is computed while importing."""


@dataclass(frozen=True, slots=True)
class Bias:
    """What is added to the scores, (B or 1, H or 1, S or 1, T), in the type of the scores."""

    value: relax.Expr
    may_hide_rows: bool
    """Whether all keys of a query may be hidden, so that its softmax is of -infinity only."""


@dataclass(frozen=True, slots=True)
class Visible:
    """Which keys a query sees: from its position less ``left`` to its position plus ``right``, below ``lengths``.

    The query at row i is at position ``offset + i``, or at ``offsets[b] + i``. Sides that are None are open.
    """

    left: int | None = None
    right: int | None = None
    offset: Dim = 0
    offsets: relax.Expr | None = None
    """(B,) of int64."""
    lengths: relax.Expr | None = None
    """(B,) of int64."""

    @property
    def is_all(self) -> bool:
        """Whether each query sees each key."""
        return self.left is None and self.right is None and self.lengths is None


def bias_of(
    node: OnnxNode,
    visible: Visible,
    mask: relax.Expr | None,
    sizes: Sequence[Dim],
    dtype: str,
    hides: bool = True,
) -> Bias | None:
    """The bias for queries that see ``visible`` keys, plus a mask of bools or numbers; None if there is none.

    ``sizes`` are B, H, S and T. The last axis of the mask may be shorter than T: the missing keys are hidden.
    ``hides`` says whether the mask may hide all keys of a query.
    """
    structure = _structure(node, visible, sizes, wide_type(dtype))
    if mask is None:
        return None if structure is None else Bias(structure, _hides_rows(visible, structure))
    added = _additive(node, mask, sizes, wide_type(dtype))
    if structure is None:
        return Bias(added, _has_hidden_row(added) if isinstance(added, ir.GenericConst) else hides)
    if isinstance(added, ir.GenericConst) and isinstance(structure, ir.GenericConst):
        both = node.constant(added.value.numpy() + structure.value.numpy(), wide_type(dtype))
        return Bias(both, _has_hidden_row(both))
    return Bias(node.emit(relax.op.add(added, structure)), hides or _hides_rows(visible, structure))


def _has_hidden_row(bias: ir.GenericConst) -> bool:
    return bool(np.any(np.all(bias.value.numpy() == -np.inf, axis=-1)))


def _hides_rows(visible: Visible, bias: relax.Expr) -> bool:
    """Whether a query may see no key."""
    if isinstance(bias, ir.GenericConst):
        return _has_hidden_row(bias)
    return visible.left is not None or visible.lengths is not None or visible.offsets is not None


def _additive(node: OnnxNode, mask: relax.Expr, sizes: Sequence[Dim], dtype: str) -> relax.Expr:
    """A mask of rank 1 to 4 as numbers that broadcast to ``sizes``: B, H, S and T."""
    shape = node.dims(mask)
    if len(shape) > 4:
        node.refuse(f"its mask has rank {len(shape)}, and at most 4 is defined")
    if isinstance(mask, ir.GenericConst) and dtype != "bfloat16":
        known = mask.value.numpy()
        known = np.where(known, 0, -np.inf) if known.dtype == bool else known
        mask = node.constant(known.reshape([1] * (4 - known.ndim) + list(known.shape)), dtype)
    else:
        mask = node.reshaped(mask, [*[1] * (4 - len(shape)), *shape]) if len(shape) < 4 else mask
        if dtype_of(mask) == "bool":
            mask = node.emit(relax.op.where(mask, node.constant(0, dtype), node.constant(-np.inf, dtype)))
        mask = node.cast(mask, dtype)
    return _fitted(node, mask, sizes, dtype)


def _fitted(node: OnnxNode, mask: relax.Expr, sizes: Sequence[Dim], dtype: str) -> relax.Expr:
    """A mask of rank 4 with axes of size 1 or as in ``sizes``; keys after its last one are hidden.

    Whether an axis of unknown size is broadcast shows when the program runs.
    """
    dims = node.dims(mask)
    pads = node.version >= 24 and not node.proto.domain
    fits = [
        (isinstance(have, int) and have == 1 and (axis < 3 or not pads)) or bool(are_equal(have, want))
        for axis, (have, want) in enumerate(zip(dims, sizes, strict=True))
    ]
    if all(fits):
        return mask

    def fitted_mask(m: te.Tensor, sizes: Sequence[Dim]) -> te.Tensor:
        wanted = [have if fit else want for have, want, fit in zip(m.shape, sizes, fits, strict=True)]

        def element(*place: ir.Expr) -> ir.Expr:
            lead = zip(place[:3], m.shape[:3], fits[:3], strict=True)
            source = [
                at if fit else tirx.Select(have == 1, tirx.const(0, "int64"), at.astype("int64"))
                for at, have, fit in lead
            ]
            if fits[3]:
                return m(*source, place[3])
            return tirx.if_then_else(place[3] < m.shape[3], m(*source, place[3]), tirx.const(-np.inf, dtype))

        return te.compute(wanted, element, name="mask")

    return node.emit(node.builder.call_te(fitted_mask, mask, list(sizes)))


def _structure(node: OnnxNode, visible: Visible, sizes: Sequence[Dim], dtype: str) -> relax.Expr | None:
    """0 where a key is visible and -infinity elsewhere, (B or 1, 1, S, T); None if all are visible."""
    rows, keys = sizes[2:]
    if visible.is_all:
        return None
    tensors = [tensor for tensor in (visible.offsets, visible.lengths) if tensor is not None]
    if not tensors:
        made = _known(visible, rows, keys)
        if made is not None:
            return node.constant(made, dtype)

    def visible_keys(given: Sequence[te.Tensor], offset: Dim, sizes: Sequence[Dim]) -> te.Tensor:
        batch, _, rows, keys = sizes

        def element(b: ir.Expr, _h: ir.Expr, i: ir.Expr, j: ir.Expr) -> ir.Expr:
            at = i + (offset if visible.offsets is None else given[0](b))
            tests = _tests(visible, at, j)
            tests += [] if visible.lengths is None else [j < given[-1](b)]
            return tirx.Select(tirx.all(*tests), tirx.const(0, dtype), tirx.const(-np.inf, dtype))

        return te.compute([batch if tensors else 1, 1, rows, keys], element, name="visible")

    return node.emit(node.builder.call_te(visible_keys, tensors, visible.offset, list(sizes)))


def _known(visible: Visible, rows: Dim, keys: Dim) -> np.ndarray | None:
    """The structure (1, 1, S, T), if its sizes are known and it is not too large to be kept."""
    first = visible.offset
    if not isinstance(rows, int) or not isinstance(keys, int) or not isinstance(first, int):
        return None
    if rows * keys > _MOST_KNOWN:
        return None
    tests = _tests(visible, np.arange(rows)[:, None] + first, np.arange(keys)[None])
    seen = np.all([np.broadcast_to(test, [rows, keys]) for test in tests], axis=0)
    return np.where(seen, 0, -np.inf)[None, None]


def _tests(visible: Visible, query: ir.Expr | np.ndarray, key: ir.Expr | np.ndarray) -> list:
    """Tests of the position of a key against that of a query."""
    tests = []
    if visible.left is not None:
        tests.append(key >= query - visible.left)
    if visible.right is not None:
        tests.append(key <= query + visible.right)
    return tests
