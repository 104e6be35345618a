"""Operators of PyTorch where the obvious formula is off: floors, numbers in 16 bits, powers of two, float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unity_collage as uc

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def result(function: Callable[..., Any], *inputs: torch.Tensor) -> torch.Tensor:
    return torch.from_dlpack(uc.compile(Function(function), inputs, measure=False)(*inputs))


NUMBERS = torch.tensor([1.0, 0.3, 0.7, -0.3, -1.0, 6.0, 5e-1, 1e6])
DIVISORS = torch.tensor([0.1, -0.1, 0.7, 3.0, float("inf"), -float("inf"), 0.0, 1e-3])


@pytest.mark.parametrize("divisor", [0.1, -0.1, DIVISORS], ids=["a number", "a negative number", "a tensor"])
def test_a_floor_is_that_of_the_exact_quotient(divisor: Any) -> None:
    wanted = NUMBERS // divisor
    assert wanted[0] == (9 if not isinstance(divisor, float) or divisor > 0 else -10)
    torch.testing.assert_close(
        result(lambda x: x // divisor, NUMBERS), wanted, rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["eq", "le", "ge", "lt"])
def test_a_number_is_compared_as_the_type_has_it(dtype: torch.dtype, name: str) -> None:
    compare = getattr(torch, name)
    x = torch.tensor([0.1, 0.2, 0.3, -0.1, 1.0, 2.0], dtype=dtype)
    for number in (0.1, 0.3):
        assert torch.equal(result(lambda x, number=number: compare(x, number), x), compare(x, number))


def test_logarithms_and_powers_of_two_are_exact() -> None:
    exponents = torch.arange(-40.0, 41.0)
    powers = 2.0**exponents
    assert torch.equal(result(torch.log2, powers), exponents)
    assert torch.equal(result(torch.exp2, exponents), powers)
    assert torch.equal(result(torch.log10, torch.tensor([1e3, 1e6])), torch.tensor([3.0, 6.0]))


@pytest.mark.parametrize("name", ["log1p", "expm1"])
def test_float64_has_its_digits_near_zero(name: str) -> None:
    x = torch.tensor([1e-12, 1e-3, 0.05, 0.06, -0.06, 0.1, 0.12, -0.12], dtype=torch.float64)
    function = getattr(torch, name)
    np.testing.assert_allclose(result(function, x).numpy(), function(x).numpy(), rtol=1e-14)
