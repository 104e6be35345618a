"""Operators for which oneDNN gives other last bits than the operator's own formula.

Its transcendental functions are polynomials that are off by up to a few hundred units in the last place near their
zeros. A quotient by a number is a product with the rounded reciprocal, and two scalar factors or summands in a row may
become one.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from ..native.values import op_name, scalar_of

_APPROXIMATED = frozenset(
    f"relax.{name}"
    for name in (
        "divide", "exp", "log", "nn.gelu", "nn.gelu_tanh", "nn.selu", "nn.silu", "nn.softplus", "power", "rsqrt",
        "sigmoid", "tanh",
    )
)  # fmt: skip
_JOINED = frozenset({"relax.add", "relax.multiply", "relax.subtract"})


def why_inexact(calls: Sequence[relax.Call]) -> str | None:
    """Why oneDNN's kernel of these calls is off in the last bits, or None."""
    names = [op_name(call) for call in calls]
    approximated = next((name for name in names if name in _APPROXIMATED), None)
    if approximated is not None:
        return f"oneDNN's {approximated.removeprefix('relax.')} is off in the last bits"
    scalars = [
        name
        for call, name in zip(calls, names, strict=True)
        if name in _JOINED and any(scalar_of(value) is not None for value in call.args)
    ]
    return "oneDNN makes one of two scalar factors or summands" if len(scalars) > 1 else None
