"""Operators that can be computed before a transpose of their operand, with their axes renamed."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from .folding import Folding, Move, Order, attribute, axis_of


def _along_axis(folding: Folding, node: onnx.NodeProto, names: Sequence[str], order: Order) -> bool:
    folding.put_behind(node, names, order, axis=order[axis_of(node, len(order))])
    return True


def _padded(folding: Folding, node: onnx.NodeProto, names: Sequence[str], order: Order) -> bool:
    pads = folding.numbers(names[1])
    if pads is None or len(names) > 3:
        return False
    rank, moved = len(order), [0] * len(pads)
    for axis, source in enumerate(order):
        moved[source], moved[rank + source] = pads[axis], pads[rank + axis]
    folding.put_behind(node, [names[0], folding.constant("pads", moved), *names[2:]], order)
    return True


def _sliced(folding: Folding, node: onnx.NodeProto, names: Sequence[str], order: Order) -> bool:
    axes = folding.numbers(names[3]) if len(names) > 3 else None
    if axes is None:
        return False
    moved = folding.constant("axes", [order[axis] for axis in axes])
    folding.put_behind(node, [*names[:3], moved, *names[4:]], order)
    return True


def _reduced(folding: Folding, node: onnx.NodeProto, names: Sequence[str], order: Order) -> bool:
    axes = folding.numbers(names[1]) if len(names) > 1 else None
    if axes is None:
        return False
    rank = len(order)
    gone = {axis % rank for axis in axes}
    left = order
    if not attribute(node, "keepdims", 1):
        sources = [order[axis] for axis in range(rank) if axis not in gone]
        left = tuple(sorted(sources).index(source) for source in sources)
    moved = folding.constant("axes", sorted(order[axis] for axis in gone))
    folding.put_behind(node, [names[0], moved], left)
    return True


def _reshaped(folding: Folding, node: onnx.NodeProto, names: Sequence[str], order: Order) -> bool:
    """A transpose that only moves axes of one element makes no difference to a reshape."""
    shape = folding.shapes.get(names[0])
    if shape is None or [axis for axis in order if shape[axis] != 1] != [
        axis for axis in range(len(order)) if shape[axis] != 1
    ]:
        return False
    folding.as_other_name(node, names)
    return True


MOVES: dict[str, Move] = {
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"), _reduced),
    "LogSoftmax": _along_axis,
    "Pad": _padded,
    "Reshape": _reshaped,
    "Slice": _sliced,
    "Softmax": _along_axis,
    "Split": _along_axis,
}
"""By operator of ONNX."""
