"""The places of the largest and smallest elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import relax

from ....legalization.places import place_of_extremum
from ..node import Converted, OnnxNode


def _arg(largest: bool) -> Callable[[OnnxNode], Converted]:
    def convert(node: OnnxNode) -> Converted:
        axis, keepdims = node.axis(node.attribute("axis", 0)), bool(node.attribute("keepdims", 1))
        if node.rank() == 0:
            return node.constant(0, "int64")
        if not node.attribute("select_last_index", 0):
            return (relax.op.argmax if largest else relax.op.argmin)(node[0], axis, keepdims)
        return place_of_extremum(node.builder, node[0], axis, largest=largest, last=True, keepdims=keepdims)

    return convert


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"ArgMax": _arg(True), "ArgMin": _arg(False)}
