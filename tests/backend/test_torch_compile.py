"""``torch.compile(backend="unity_collage")`` where TorchDynamo calls one graph with other weights or sizes."""

from __future__ import annotations

from typing import Any

import pytest
from compiled import LIBRARIES_FIRST

from unity_collage import dynamo
from unity_collage.errors import CollageError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402

OPTIONS = {"fallback": False, "estimator": LIBRARIES_FIRST}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).relu()


def test_instances_of_a_class_have_their_own_weights() -> None:
    """TorchDynamo calls one graph for both, with the weights as arguments."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    first, second, x = Layer().eval(), Layer().eval(), torch.randn(3, 4)
    compiled = torch.compile(lambda layer, x: layer(x), backend="unity_collage", options=OPTIONS)
    with torch.no_grad():
        for layer in (first, second, first):
            torch.testing.assert_close(compiled(layer, x), layer(x), rtol=1e-4, atol=1e-5)


def test_weights_may_change_between_calls() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    layer, x = Layer().eval(), torch.randn(3, 4)
    compiled = torch.compile(layer, backend="unity_collage", options=OPTIONS)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), layer(x), rtol=1e-4, atol=1e-5)
            layer.inner.weight.mul_(2)


def test_a_parameter_may_get_other_memory() -> None:
    """Memory that a parameter has left is not given to the next weights."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    layer, x = Layer().eval(), torch.randn(3, 4)
    compiled = torch.compile(layer, backend="unity_collage", options=OPTIONS)
    with torch.no_grad():
        for _ in range(6):
            layer.inner.weight.data = torch.randn(4, 4)
            torch.testing.assert_close(compiled(x), layer(x), rtol=1e-4, atol=1e-5)


def test_weights_that_change_again_and_again_are_left_to_torch(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    layer, x = Layer().eval(), torch.randn(3, 4)
    compiled = torch.compile(layer, backend="unity_collage", options=OPTIONS | {"fallback": True})
    with torch.no_grad():
        for _ in range(7):
            torch.testing.assert_close(compiled(x), layer(x), rtol=1e-4, atol=1e-5)
            layer.inner.weight.mul_(1.5)
    assert caplog.text.count("change again and again between calls") == 1


def test_sizes_may_be_results() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: (x + 1, x.shape[0] * 2), backend="unity_collage", options=OPTIONS, dynamic=True
    )
    with torch.no_grad():
        for rows in (3, 5):
            found, size = compiled(torch.ones(rows, 4))
            torch.testing.assert_close(found, torch.full((rows, 4), 2.0))
            assert size == 2 * rows


@pytest.mark.parametrize(("options", "eager"), [({}, False), ({"eager": True}, True)])
def test_pytorch_itself_is_timed_only_where_that_is_asked(
    options: dict[str, Any], eager: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    def compiled(_: Any, **options: Any) -> Any:
        given.append(options["eager"])
        raise CollageError("not now")

    monkeypatch.setattr(dynamo, "compile_model", compiled)
    torch._dynamo.reset()
    with torch.no_grad():
        assert torch.compile(lambda x: x + 1, backend="unity_collage", options=options)(torch.ones(2))[0] == 2
    assert given == [eager]
