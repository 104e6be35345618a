"""Operators of PyTorch with sizes that are known when the program runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unity_collage as uc
from unity_collage.errors import CollageError, ModelError
from unity_collage.frontend.models import import_model

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


class Module(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.token = nn.Parameter(torch.arange(8.0).reshape(1, 8))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


ROWS = (3, 5, 2)
CASES: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "causal attention": lambda _, x: F.scaled_dot_product_attention(
        x[None], x[None], x[None], is_causal=True
    ),
    "a lower triangle": lambda _, x: torch.tril(x @ x.T, -1),
    "an upper triangle": lambda _, x: torch.triu(x @ x.T, 1),
    "a repeated token": lambda self, x: torch.cat([self.token.repeat(x.shape[0], 1), x], 1),
    "repeated rows": lambda _, x: x.repeat(2, 1),
    "rows repeated as often": lambda _, x: x.repeat(x.shape[0], 2),
    "one element of each row": lambda _, x: x[torch.arange(x.shape[0]), x.argmax(-1)],
    "places as floats": lambda _, x: x + torch.arange(x.shape[0], dtype=torch.float32)[:, None],
    "the last rows": lambda _, x: torch.cat([x, x])[-x.shape[0] :] * 2,
    "rows backwards": lambda _, x: x.flip(0),
    "rows added to rows": lambda _, x: torch.zeros(4, 8).scatter_add_(
        0, (x[:, :1] > 0).long().expand_as(x), x
    ),
    "one of the last rows": lambda _, x: torch.cat([x, x + 1])[-x.shape[0]],
}


@pytest.mark.parametrize("case", CASES)
def test_an_operator_takes_a_free_number_of_rows(case: str) -> None:
    module = Module(CASES[case]).eval()
    free = {"x": {0: torch.export.Dim("rows", min=2, max=64)}}
    program = uc.compile(
        torch.export.export(module, (torch.randn(3, 8),), dynamic_shapes=free), measure=False
    )
    for rows in ROWS:
        x = torch.randn(rows, 8)
        with torch.no_grad():
            np.testing.assert_allclose(program(x).numpy(), module(x).numpy(), rtol=1e-4, atol=1e-5)


def pyramid(_: Any, x: torch.Tensor) -> torch.Tensor:
    small = F.max_pool2d(x, 2)
    return F.interpolate(small, scale_factor=2.0) + x


def exported(function: Callable[..., Any], height: Any) -> Any:
    module = Module(function).eval()
    return module, torch.export.export(module, (torch.randn(1, 2, 8, 6),), dynamic_shapes={"x": {2: height}})


def test_an_axis_may_be_a_multiple() -> None:
    """``torch.export`` asks for such a dimension where halves are added to the whole."""
    module, program = exported(pyramid, 2 * torch.export.Dim("half", min=2, max=64))
    compiled = uc.compile(program, measure=False)
    for height in (8, 12, 6):
        x = torch.randn(1, 2, height, 6)
        np.testing.assert_allclose(compiled(x).numpy(), module(x).numpy(), rtol=1e-5)
    with pytest.raises(CollageError, match="not a multiple of 2"):
        compiled(torch.randn(1, 2, 7, 6))


def test_another_expression_needs_a_dimension_of_its_own() -> None:
    with pytest.raises(ModelError, match=r"an axis of size .*; give it a dimension of its own"):
        import_model(exported(lambda _, x: x * 2, torch.export.Dim("rest", min=2, max=64) + 1)[1])


def test_a_row_that_is_expanded_to_all_is_added_to_one() -> None:
    def added(_: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(4, 8).scatter_add_(0, (x[:1, :1] > 9).long().expand(5, 8), x)

    x, module = torch.randn(5, 8), Module(added).eval()
    np.testing.assert_allclose(
        uc.compile(module, (x,), measure=False)(x).numpy(), module(x).numpy(), rtol=1e-5
    )


def test_unfold_takes_an_image_without_a_batch() -> None:
    x = torch.randn(3, 6, 7)
    module = nn.Unfold(3, padding=1, stride=2)
    np.testing.assert_allclose(uc.compile(module, (x,), measure=False)(x).numpy(), module(x).numpy())
