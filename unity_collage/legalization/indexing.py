"""Reads at indexes, which count from the end if they are negative.

For negative indexes TVM's kernels of these operators read memory before the tensor. An index is valid from -n to n - 1;
the kernels do not check that. ``take`` in the modes "clip", "wrap" and "nan" defines negative indexes in TVM already.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import ir, relax, te, tirx, topi

from .stock import Legalization


def from_the_end(index: ir.Expr, extent: ir.Expr) -> ir.Expr:
    """``index``, plus ``extent`` if it is negative, as int64."""
    if str(index.expr_ty().dtype).startswith("uint"):
        return index
    wide = index.astype("int64")
    return tirx.Select(wide < 0, wide + tirx.Cast("int64", extent), wide)


def _take(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Slices along an axis. ``fast`` promises that indexes are valid; the other modes are TVM's."""
    mode, axis = str(call.attrs.mode), call.attrs.axis
    if mode != "fast":
        return builder.call_te(topi.take, *call.args, axis, mode=mode)

    def take(data: te.Tensor, indices: te.Tensor | ir.Expr) -> te.Tensor:
        at = 0 if axis is None else int(axis) % len(data.shape)
        extents = tuple(indices.shape) if isinstance(indices, te.Tensor) else ()
        end = at + len(extents)

        def element(*place: ir.Expr) -> ir.Expr:
            index = indices(*place[at:end]) if isinstance(indices, te.Tensor) else indices
            return data(*place[:at], from_the_end(index, data.shape[at]), *place[end:])

        shape = (*data.shape[:at], *extents, *data.shape[at + 1 :])
        return te.compute(shape, element, name="take", tag=topi.tag.INJECTIVE)

    return builder.call_te(take, *call.args)


def _gather_elements(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    def gather(data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        axis = int(call.attrs.axis) % len(data.shape)

        def element(*place: ir.Expr) -> ir.Expr:
            index = from_the_end(indices(*place), data.shape[axis])
            return data(*place[:axis], index, *place[axis + 1 :])

        return te.compute(indices.shape, element, name="gather_elements", tag=topi.tag.INJECTIVE)

    return builder.call_te(gather, *call.args)


def _gather_nd(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Sub-tensors at the multi-indexes in the last axis of ``indices``."""
    batch = int(call.attrs.batch_dims)

    def gather(data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        *leading, count = indices.shape
        width = static(count)

        def element(*place: ir.Expr) -> ir.Expr:
            row = place[: len(leading)]
            picked = [from_the_end(indices(*row, k), data.shape[batch + k]) for k in range(width)]
            return data(*place[:batch], *picked, *place[len(leading) :])

        shape = (*leading, *data.shape[batch + width :])
        return te.compute(shape, element, name="gather_nd", tag=topi.tag.INJECTIVE)

    return builder.call_te(gather, *call.args)


def _index_tensor(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``data[I0, I1, ...]`` as in numpy, where the index tensors are broadcast together."""

    def index(data: te.Tensor, *indices: te.Tensor) -> te.Tensor:
        shape = list(broadcast([tensor.shape for tensor in indices]))

        def element(*place: ir.Expr) -> ir.Expr:
            row = place[: len(shape)]
            picked = [
                from_the_end(tensor(*own(tensor.shape, row)), data.shape[k])
                for k, tensor in enumerate(indices)
            ]
            return data(*picked, *place[len(shape) :])

        whole = (*shape, *data.shape[len(indices) :])
        return te.compute(whole, element, name="index_tensor", tag=topi.tag.INJECTIVE)

    return builder.call_te(index, call.args[0], *fields(builder, call.args[1]))


def fields(builder: relax.BlockBuilder, value: relax.Expr) -> list[relax.Expr]:
    """The tensors of a tuple; ``index_put`` also takes one tensor."""
    if isinstance(value, relax.Tuple):
        return list(value.fields)
    if not isinstance(value.ty, relax.TupleType):
        return [value]
    return [builder.emit(relax.TupleGetItem(value, k)) for k in range(len(value.ty.fields))]


def broadcast(shapes: Sequence[Sequence[ir.Expr]]) -> Sequence[ir.Expr]:
    """The shape that ``shapes`` have together."""
    rank = max(len(shape) for shape in shapes)
    padded = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    return [
        next((extent for extent in axis if not _is_one(extent)), axis[0])
        for axis in zip(*padded, strict=True)
    ]


def own(shape: Sequence[ir.Expr], place: Sequence[ir.Expr]) -> list[ir.Expr]:
    """The place in a tensor of ``shape`` that is read for the ``place`` in the broadcast shape."""
    last = place[len(place) - len(shape) :]
    return [tirx.const(0, "int64") if _is_one(extent) else at for extent, at in zip(shape, last, strict=True)]


def static(extent: ir.Expr) -> int:
    assert isinstance(extent, tirx.IntImm), "the type of a result needs the number of coordinates"
    return int(extent.value)


def _is_one(extent: ir.Expr | int) -> bool:
    return int(extent) == 1 if isinstance(extent, (int, tirx.IntImm)) else False


LEGALIZATIONS: dict[str, Legalization] = {
    "relax.take": _take,
    "relax.gather_elements": _gather_elements,
    "relax.gather_nd": _gather_nd,
    "relax.index_tensor": _index_tensor,
}
