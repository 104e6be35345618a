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


def _into_first_of_input(x: torch.Tensor) -> torch.Tensor:
    first, scaled = x[0], x * 2
    torch._dynamo.graph_break()
    first.add_(1)
    return x + scaled


def _into_first_of_result(x: torch.Tensor) -> torch.Tensor:
    scaled = x * 2
    first = scaled[0]
    torch._dynamo.graph_break()
    first.add_(1)
    return scaled


def _from_changed_input(x: torch.Tensor) -> torch.Tensor:
    turned, scaled = x.mT, x * 2
    torch._dynamo.graph_break()
    x.add_(1)
    return turned.sin() + scaled.mT


@pytest.mark.parametrize("function", [_into_first_of_input, _into_first_of_result, _from_changed_input])
@pytest.mark.parametrize("turn", [False, True])
def test_a_change_behind_a_graph_reaches_all_that_share_its_memory(function: Any, turn: bool) -> None:
    """A part of a tensor is a result of the first graph, and is changed or read after it."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="unity_collage", options=OPTIONS | {"fallback": True})

    def drawn() -> torch.Tensor:
        x = torch.arange(12.0).reshape(3, 4)
        return x.mT[1:] if turn else x

    with torch.no_grad():
        for _ in range(2):
            given, wanted = drawn(), drawn()
            torch.testing.assert_close(compiled(given), function(wanted))
            torch.testing.assert_close(given, wanted)


def test_a_view_of_an_input_or_a_weight_is_in_its_memory() -> None:
    layer = Layer().eval()
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: (layer(x), x.mT[1:], layer.inner.weight[2]), backend="unity_collage", options=OPTIONS
    )
    with torch.no_grad():
        for x in (torch.randn(3, 4), torch.randn(5, 3, 4)[1], torch.randn(4, 3).mT):
            found, turned, row = compiled(x)
            torch.testing.assert_close(found, layer(x), rtol=1e-4, atol=1e-5)
            for view, wanted in ((turned, x.mT[1:]), (row, layer.inner.weight[2])):
                assert (view.data_ptr(), view.stride()) == (wanted.data_ptr(), wanted.stride())
                torch.testing.assert_close(view, wanted.detach())


def test_parts_that_share_no_element_are_results() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        first, second = (x * 2).chunk(2, dim=-1)
        torch._dynamo.graph_break()
        return first - second

    torch._dynamo.reset()
    x = torch.randn(3, 4)
    compiled = torch.compile(function, backend="unity_collage", options=OPTIONS)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), function(x))


def test_a_graph_that_torch_cannot_decompose_is_left_to_torch(caplog: pytest.LogCaptureFixture) -> None:
    layer, x = nn.Linear(4, 4).eval(), torch.randn(3, 4)

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(x)
        return y.float() + 1

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="unity_collage", options=OPTIONS | {"fallback": True})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), function(x))
    assert "torch cannot decompose it: Tensor dtype mismatch" in caplog.text


def test_tensors_elsewhere_are_left_to_torch(caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x + 1, backend="unity_collage", options=OPTIONS | {"fallback": True})
    with torch.no_grad():
        assert compiled(torch.ones(2, device="meta")).is_meta
    assert "a tensor is on meta, and the program runs on cpu" in caplog.text
