"""Operators of PyTorch have torch's numbers, shapes and dtypes, built as programs are, but for their schedules."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch.utils import _pytree as pytree  # noqa: E402
from torch_operators import GROUPS, Case  # noqa: E402

from unity_collage.frontend.pytorch import imported  # noqa: E402
from unity_collage.lowering.build import build  # noqa: E402
from unity_collage.target import host_target  # noqa: E402


class Together(torch.nn.Module):
    """Many functions as one module, so that they are built at once."""

    def __init__(self, cases: Iterable[Case]) -> None:
        super().__init__()
        self._cases = list(cases)

    def forward(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        given = iter(inputs)
        return tuple(tensors(f(*(next(given) for _ in values))) for f, values in self._cases)


def tensors(results: Any) -> tuple[torch.Tensor, ...]:
    return tuple(leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor))


def built(mod: tvm.IRModule) -> Any:
    return relax.VirtualMachine(build(mod, host_target()), tvm.cpu())["main"]


def differences(case: Case, found: Iterable[Any]) -> list[str]:
    f, inputs = case
    wrong = []
    for ours, theirs in zip(found, tensors(f(*(value.clone() for value in inputs))), strict=True):
        a, b = ours.numpy(), theirs.numpy()
        if a.shape != b.shape or a.dtype != b.dtype:
            wrong.append(f"{a.dtype}{a.shape} instead of {b.dtype}{b.shape}")
        elif not np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True):
            wrong.append(f"{a.ravel()[:6]} instead of {b.ravel()[:6]}")
    return wrong


@pytest.mark.parametrize("group", GROUPS)
def test_operators_have_the_numbers_of_torch(group: str) -> None:
    cases = GROUPS[group]
    inputs = tuple(value.clone() for _, values in cases.values() for value in values)
    mod, *_ = imported(Together(cases.values()), inputs)
    found = iter(built(mod)(*(tvm.runtime.tensor(value.contiguous().numpy()) for value in inputs)))
    wrong = {}
    for name, case in cases.items():
        count = len(tensors(case[0](*(value.clone() for value in case[1]))))
        if reasons := differences(case, [next(found) for _ in range(count)]):
            wrong[name] = reasons
    assert not wrong


def test_images_of_bytes_are_rounded_as_torch_rounds_them() -> None:
    """Torch also rounds the weights to integers, so some bytes are others by one."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(0, 256, (1, 3, 20, 24), dtype=torch.uint8, generator=generator)
    ways: list[dict[str, Any]] = [
        {"mode": mode, "antialias": antialias}
        for mode in ("bilinear", "bicubic")
        for antialias in (False, True)
    ]
    cases = [
        (functools.partial(torch.nn.functional.interpolate, size=(13, 31), **way), (image,)) for way in ways
    ]
    mod, *_ = imported(Together(cases), (image,) * len(ways))
    for found, (resize, _) in zip(
        built(mod)(*[tvm.runtime.tensor(image.numpy())] * len(ways)), cases, strict=True
    ):
        apart = np.abs(found.numpy().astype(int) - resize(image).numpy().astype(int))
        assert apart.max() <= 2 and apart.mean() < 0.1
