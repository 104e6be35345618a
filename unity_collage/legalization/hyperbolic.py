"""``sinh`` and ``cosh`` of float64 and bfloat16, which TVM has no code for on a CPU. Float32 has a formula in
:mod:`unity_collage.schedule.formulas`, and bfloat16 is computed by it."""

from __future__ import annotations

from collections.abc import Callable
from math import factorial
from typing import Any

from tvm import ir, relax, te, tirx, topi

from .stock import Legalization, legalized_by_tvm

_topi: Any = topi
"""Its stubs have few of its functions."""
_TERMS = 10
"""Of the series of sinh: below 1 the next one is under 1e-19 of the result."""


def _double(value: float) -> ir.Expr:
    return tirx.const(value, "float64")


def _halves(x: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    """exp(|x|) / 2 and exp(-|x|) / 2. The first is finite wherever sinh(|x|) is."""
    root = tirx.exp(_double(0.5) * tirx.abs(x))
    return _double(0.5) * root * root, _double(0.5) / root / root


def _cosh(x: ir.Expr) -> ir.Expr:
    up, down = _halves(x)
    return up + down


def _sinh(x: ir.Expr) -> ir.Expr:
    up, down = _halves(x)
    series = _double(1 / factorial(2 * _TERMS - 1))
    for number in range(2 * _TERMS - 3, 0, -2):
        series = series * (x * x) + _double(1 / factorial(number))
    far = tirx.Select(x < _double(0.0), down - up, up - down)
    return tirx.Select(tirx.abs(x) < _double(1.0), x * series, far)


def _legalized(name: str, formula: Callable[[ir.Expr], ir.Expr]) -> Legalization:
    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        assert isinstance(call.ty, relax.TensorType)
        dtype = str(call.ty.dtype)

        def in_float64(data: te.Tensor) -> te.Tensor:
            return te.compute(data.shape, lambda *at: formula(data(*at)), name=name)

        def in_float32(data: te.Tensor) -> te.Tensor:
            return topi.cast(getattr(_topi, name)(topi.cast(data, "float32")), dtype)

        compute = {"float64": in_float64, "bfloat16": in_float32}.get(dtype)
        if compute is None:
            return legalized_by_tvm(builder, call)
        return builder.call_te(compute, call.args[0], primfunc_name_hint=f"{name}_of_{dtype}")

    return legalize


LEGALIZATIONS: dict[str, Legalization] = {
    "relax.cosh": _legalized("cosh", _cosh),
    "relax.sinh": _legalized("sinh", _sinh),
}
