"""``torch.while_loop``: it ends when the values say so, with a depth of calls that does not grow with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import LIBRARIES_FIRST

import unity_collage as uc
from unity_collage.frontend.models import import_model

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402
from torch._higher_order_ops.while_loop import while_loop  # noqa: E402


class Decaying(nn.Module):
    """A layer as many times as an input says, with a branch in each iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, count: torch.Tensor, offset: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def goes_on(i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return i < count.squeeze()

        def iteration(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            def near(y: torch.Tensor) -> torch.Tensor:
                return y * 0.5 + offset

            def far(y: torch.Tensor) -> torch.Tensor:
                return y - 1

            return i + 1, torch.cond(y.amax() < 3, near, far, (self.layer(y).tanh() * 4,))

        i, y = while_loop(goes_on, iteration, (torch.zeros((), dtype=torch.int64), x))
        return y, i, y * 2


class Halving(nn.Module):
    """Until a norm is small."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (y,) = while_loop(lambda y: y.abs().sum() > 1, lambda y: (y / 2,), (x,))
        return y


def assert_agrees(program: uc.Program, module: nn.Module, *inputs: torch.Tensor) -> None:
    with torch.no_grad():
        want: Any = module(*inputs)
    have = program(*inputs)
    for one, other in zip(
        [have] if hasattr(have, "shape") else have, want if isinstance(want, tuple) else [want], strict=True
    ):
        np.testing.assert_allclose(np.asarray(one), other.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_free", [False, True])
def test_a_loop_ends_by_a_value(is_free: bool) -> None:
    torch.manual_seed(2)
    module, x, offset = Decaying().eval(), torch.randn(3, 4), torch.ones(4)
    rows = {0: torch.export.Dim("rows", min=2, max=64)} if is_free else None
    free = {"x": rows, "count": None, "offset": None} if is_free else None
    exported = torch.export.export(module, (x, torch.tensor([2]), offset), dynamic_shapes=free)
    program = uc.compile(exported, estimator=LIBRARIES_FIRST)
    for count in (0, 1, 2, 5, 64):
        assert_agrees(program, module, x, torch.tensor([count]), offset)
    if is_free:
        assert_agrees(program, module, torch.randn(7, 4), torch.tensor([3]), offset)


def test_many_iterations_do_not_overflow_the_stack() -> None:
    program = uc.compile(
        Decaying().eval(), (torch.zeros(1, 4), torch.tensor([1]), torch.zeros(4)), measure=False
    )
    _, count, _ = program(torch.zeros(1, 4), torch.tensor([30_000]), torch.zeros(4))
    assert int(np.asarray(count)) == 30_000


def test_a_loop_of_floats_has_the_same_number_of_iterations() -> None:
    program = uc.compile(Halving(), (torch.ones(4, 4),), measure=False)
    for factor in (0.01, 1.0, 1e20, -1e20):
        assert_agrees(program, Halving(), factor * torch.ones(4, 4))


def test_functions_that_nothing_calls_are_left_out() -> None:
    mod = import_model(Halving(), (torch.ones(4, 4),)).mod
    assert sorted(gvar.name_hint for gvar in mod.get_global_vars()) == [
        "loop",
        "loop_halves",
        "loop_once",
        "main",
    ]
