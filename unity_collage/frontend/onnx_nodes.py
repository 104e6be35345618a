"""Builds nodes of an ONNX graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


@dataclass(slots=True)
class Nodes:
    """Builds nodes, whose values have names that start with ``prefix``."""

    prefix: str
    made: list[onnx.NodeProto] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=count)

    def add(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node; the result is the name of its output."""
        output = output or f"{self.prefix}/{op}_{next(self._numbers)}"
        self.made.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, value: np.ndarray) -> str:
        """Add a constant."""
        return self.add("Constant", value=numpy_helper.from_array(value))

    def part(self, value: str, index: int) -> str:
        """``value[index]``, without the first axis."""
        return self.add("Gather", value, self.constant(np.array(index, "int64")), axis=0)

    def rows(self, value: str, begin: int, end: int) -> str:
        """``value[begin:end]``."""
        return self.add("Slice", value, *(self.constant(np.array([n], "int64")) for n in (begin, end, 0)))

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """``value`` with another shape."""
        return self.add("Reshape", value, self.constant(np.array(shape, "int64")))

    def transposed(self, value: str) -> str:
        """The transpose of a matrix."""
        return self.add("Transpose", value, perm=[1, 0])
