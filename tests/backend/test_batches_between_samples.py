"""Batches whose size has no plan of its own."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unity_collage as uc

torch: Any = pytest.importorskip("torch")


def convolutions() -> tuple[Any, Any]:
    """With two results, and a second input that is the same for all samples."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 3)
            self.norm = torch.nn.BatchNorm2d(8)
            self.head = torch.nn.Linear(8, 4)

        def forward(self, x: Any, scale: Any) -> Any:
            image = torch.relu(self.norm(self.conv(x))) * scale
            return image, torch.softmax(self.head(image.mean((2, 3))), -1)

    return Model().eval(), lambda n: (torch.randn(n, 3, 8, 8), torch.randn(1, 8, 1, 1))


def encoder() -> tuple[Any, Any]:
    """Its attention joins the axes of samples and heads, and of steps and samples."""
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    return layer, lambda n: (torch.randn(n, 5, 16),)


def exported(module: Any, inputs: Any) -> Any:
    free = ({0: torch.export.Dim("n", min=1, max=4096)}, *({} for _ in inputs[1:]))
    return torch.export.export(module, inputs, dynamic_shapes=free)


@cache
def compiled(make: Any) -> tuple[Any, Any, uc.Program]:
    """A module, its inputs by the number of samples, and its program."""
    torch.manual_seed(0)
    module, inputs = make()
    return module, inputs, uc.compile(exported(module, inputs(2)), measure=False)


@pytest.mark.parametrize("make", [convolutions, encoder])
def test_any_number_of_samples(make: Any, tmp_path: Path) -> None:
    module, inputs, program = compiled(make)
    (remark, *_) = program.plan["main"].remarks
    assert remark.endswith("other sizes run main_any_size")
    program.save(tmp_path / "program.so")
    for each in (program, uc.load(tmp_path / "program.so")):
        for count in (1, 2, 7, 8, 9, 31, 45, 200):
            given = inputs(count)
            with torch.no_grad():
                expected = module(*given)
            found = each(*given)
            pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
            for got, right in pairs:
                np.testing.assert_allclose(np.asarray(got), right.numpy(), rtol=1e-4, atol=1e-5)


def test_no_samples_are_no_results() -> None:
    _, inputs, program = compiled(convolutions)
    images, scores = program(np.zeros((0, 3, 8, 8), np.float32), inputs(2)[1])
    assert (images.shape, scores.shape) == ((0, 8, 6, 6), (0, 4))


def test_samples_that_depend_on_each_other() -> None:
    class Centred(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x - x.mean(0)

    module, x = Centred(), torch.randn(5, 4)
    program = uc.compile(exported(module, (torch.randn(2, 4),)), measure=False)
    np.testing.assert_allclose(np.asarray(program(x)), module(x).numpy(), rtol=1e-5, atol=1e-6)


def test_samples_that_depend_on_their_number() -> None:
    class Divided(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x / x.shape[0]

    module, x = Divided(), torch.randn(9, 4)
    program = uc.compile(exported(module, (torch.randn(2, 4),)), measure=False)
    np.testing.assert_allclose(np.asarray(program(x)), module(x).numpy(), rtol=1e-5, atol=1e-6)
