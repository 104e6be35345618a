"""Models that PyTorch has quantised: their steps are operators of Relax, and the numbers are those of eager."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization.fx._decomposed")  # registers the operators

from tvm.target import Target  # noqa: E402

import unity_collage as uc  # noqa: E402
from unity_collage.graph.calls import calls, op_name  # noqa: E402
from unity_collage.runtime import why_unavailable  # noqa: E402

STEPS: Any = torch.ops.quantized_decomposed
SCALE = 0.05


class Quantised(torch.nn.Module):
    """A convolution and a linear layer of dequantised bytes, with quantised results."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("image", torch.randint(-127, 128, (8, 4, 3, 3), dtype=torch.int8))
        self.register_buffer("matrix", torch.randint(-127, 128, (5, 8), dtype=torch.int8))
        for name, size in (("image", 8), ("matrix", 5)):
            self.register_buffer(f"{name}_scale", torch.rand(size) * 0.01 + 0.002)
            self.register_buffer(f"{name}_zero", torch.zeros(size, dtype=torch.int64))
        self.bias = torch.nn.Parameter(torch.randn(8))

    def weights(self, name: str) -> torch.Tensor:
        parts = (getattr(self, part) for part in (name, f"{name}_scale", f"{name}_zero"))
        return STEPS.dequantize_per_channel.default(*parts, 0, -127, 127, torch.int8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = self.weights("image")
        x = self.step(
            torch.relu(torch.nn.functional.conv2d(self.step(x, 0.02, 131), image, self.bias)), SCALE, 0
        )
        means = self.step(x.mean((2, 3)), SCALE, 0)
        return self.step(torch.nn.functional.linear(means, self.weights("matrix")), SCALE, -100, torch.int8)

    @staticmethod
    def step(x: torch.Tensor, scale: float, zero: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
        """Quantised and back; signed bytes are from -127 to 127."""
        limits = (0, 255) if dtype == torch.uint8 else (-127, 127)
        made = STEPS.quantize_per_tensor.default(x, scale, zero, *limits, dtype)
        return STEPS.dequantize_per_tensor.default(made, scale, zero, *limits, dtype)


@pytest.mark.parametrize("backends", [None, ["tvm"]], ids=["default", "tvm"])
def test_numbers_are_those_of_eager(backends: list[str] | None) -> None:
    model, x = Quantised().eval(), torch.randn(2, 4, 9, 10, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        want = model(x).numpy()
    found = uc.compile(model, (x,), backends=backends, measure=False)(x).numpy()
    assert np.ptp(want) > 20 * SCALE
    assert np.abs(found - want).max() < 1.01 * SCALE


def test_steps_are_operators_of_relax() -> None:
    model, x = Quantised().eval(), torch.randn(2, 4, 9, 10)
    names = [op_name(call) for call in calls(uc.import_model(model, (x,)).mod["main"])]
    assert names.count("relax.quantize") == 4
    assert names.count("relax.dequantize") == 6
    assert "relax.minimum" not in names  # 127 is the largest number of a byte
    assert names.count("relax.maximum") == 1
    assert not any("call_dps_packed" in name or "call_pure_packed" in name for name in names)


@pytest.mark.skipif(why_unavailable("onednn") is not None, reason="oneDNN is not installed")
def test_products_are_products_of_bytes() -> None:
    model, x = Quantised().eval(), torch.randn(2, 4, 9, 10)
    with Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "cascadelake"}):
        mod = uc.passes.MultiplyBytes()(uc.import_model(model, (x,)).mod)
    products = [call for call in calls(mod["main"]) if op_name(call) in ("relax.nn.conv2d", "relax.matmul")]
    assert [str(call.ty.dtype) for call in products] == ["int32", "int32"]
