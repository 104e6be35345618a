"""A node of an ONNX graph to be converted to torch, with all that is known about it before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch  # pyright: ignore[reportMissingImports]
from onnx import helper

from unity_collage.errors import ModelError

Value = Any
"""A tensor, or its stand-in while calls are recorded."""


@dataclass(frozen=True, slots=True)
class Call:
    """The constant parts of a call: shapes, attributes, and the operands that are ``known``."""

    node: onnx.NodeProto
    operands: tuple[torch.Tensor | None, ...]
    """For the inputs at hand; None for one that is left out."""
    known: tuple[bool, ...]
    """Whether an operand is the same for all inputs of these shapes."""
    attributes: Mapping[str, Any]

    def has(self, index: int) -> bool:
        """Whether there is such an operand."""
        return index < len(self.operands) and self.operands[index] is not None

    def shape(self, index: int = 0) -> list[int]:
        return list(self._operand(index).shape)

    def axis(self, default: int, rank: int | None = None) -> int:
        """The attribute ``axis``, counted from the front."""
        rank = len(self.shape()) if rank is None else rank
        return self.attributes.get("axis", default) % rank

    def is_float(self, index: int = 0) -> bool:
        return self._operand(index).is_floating_point()

    def ints(self, index: int, attribute: str = "") -> list[int] | None:
        """What older operator sets have as an attribute and newer ones as an operand; None if it is left out."""
        if self.has(index):
            return self.constant(index).flatten().tolist()
        return self.attributes.get(attribute)

    def number(self, index: int) -> float | None:
        """An operand of one element; None if it is left out."""
        return self.constant(index).item() if self.has(index) else None

    def constant(self, index: int) -> torch.Tensor:
        """An operand that is the same for all inputs of these shapes; raises ModelError for another one."""
        if not self.known[index]:
            raise self.lacks(f"where operand {index} is computed from the inputs")
        return self._operand(index)

    def lacks(self, what: str) -> ModelError:
        """The error that says that the torch function does not do ``what``."""
        return ModelError(
            f"no torch function for ONNX operator {self.node.op_type} {what} (node {title(self.node)})"
        )

    def _operand(self, index: int) -> torch.Tensor:
        value = self.operands[index]
        if value is None:
            raise self.lacks(f"without operand {index}")
        return value


def title(node: onnx.NodeProto) -> str:
    """The name of a node in messages."""
    return node.name or node.output[0]


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """All attributes of a node by name, text as ``str``."""
    values = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


def dtype_of(kind: int) -> torch.dtype:
    """torch's type for one of ``onnx.TensorProto``."""
    return torch.from_numpy(np.empty(0, helper.tensor_dtype_to_np_dtype(kind))).dtype
