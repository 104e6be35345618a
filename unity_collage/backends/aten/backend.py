"""PyTorch as a backend: single operators, each one call of ATen.

Takes     operators that ATen has by torch's own schemas: products, convolutions, poolings, normalisations, softmax,
          element-wise operators, reductions, reads at indexes, sorts and moves of elements; and a product with a bias
          or a matrix that is added. Results are written into their tensors where ATen has an overload for that, else
          copied there. Sizes are static.
Declines  operators with an argument or a form that ATen lacks, such as padding on one side; those with other results
          there, such as the sign of NaN; and types with few operators there.
Needs     ``torch``, and Python where the program runs. It is used only if it is named:
          ``backends=["onednn", "tvm", "torch"]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax
from tvm.relax.dpl import is_op, wildcard
from tvm.target import Target

from ...graph.calls import op_name
from ...rules import DFPattern, OnlyValid, OpPredicate, Rule, Union
from ...runtime import torch_calls
from ...runtime.vendors import wheel_version
from ..base import Backend
from .lowering import HANDLERS, codegen, why_not_call, why_not_linear

_APPROXIMATED = frozenset(
    f"relax.{name}"
    for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "exp", "log", "log_add_exp",
        "nn.gelu", "nn.gelu_tanh", "nn.log_softmax", "nn.selu", "nn.silu", "nn.softmax", "nn.softplus", "power",
        "rsqrt", "sigmoid", "sin", "sinh", "tan", "tanh",
    )
)  # fmt: skip
"""Operators that ATen computes by functions of its own for vectors."""


def why_inexact(calls: Sequence[relax.Call]) -> str | None:
    """Why ATen's kernel of these calls is off in the last bits, or None."""
    found = next((name for call in calls if (name := op_name(call)) in _APPROXIMATED), None)
    return found and f"ATen's {found.removeprefix('relax.')} is off in the last bits"


def _product_and_sum() -> Any:
    return is_op("relax.add")(is_op("relax.matmul")(wildcard(), wildcard()), wildcard())


def _rule(_target: Target) -> Rule:
    linear = DFPattern("linear", _product_and_sum, why_not_linear, root="relax.add")
    return Union((OpPredicate("aten", frozenset(HANDLERS), why_not_call), OnlyValid(linear)))


TORCH = Backend(
    name="torch",
    rule=_rule,
    why_unavailable=lambda: torch_calls.MISSING if torch_calls.is_missing() else None,
    fingerprint=lambda: f"PyTorch {wheel_version('torch')}, on one thread",
    codegen=codegen,
    why_inexact=why_inexact,
    by_default=False,
    version=1,
)
