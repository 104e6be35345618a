"""Which call of ATen computes an operator, by torch's schemas, and why there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relax_calls import bound, function
from tvm import relax

from unity_collage.backends.aten.asked import AskedCall, NotAten, Operand
from unity_collage.backends.aten.backend import TORCH
from unity_collage.backends.aten.lowering import kernel, why_not_call
from unity_collage.backends.aten.schemas import kernel_of
from unity_collage.graph import DataflowGraph
from unity_collage.rules import Declined
from unity_collage.runtime import torch_calls
from unity_collage.runtime.torch_kernels import TorchKernel
from unity_collage.target import host_target

pytest.importorskip("torch", reason="PyTorch is not installed")

op: Any = relax.op
nn: Any = relax.op.nn
Body = Callable[..., relax.Expr]
CHANNELS_LAST = {"data_layout": "NHWC", "kernel_layout": "OHWI"}


def call_of(body: Body, *shapes: tuple[int, ...], dtype: str = "float32") -> relax.Call:
    found = DataflowGraph(function(body, *shapes, dtype=dtype)).nodes[-1].call
    assert found is not None
    return found


def kernel_for(body: Body, *shapes: tuple[int, ...], dtype: str = "float32") -> TorchKernel:
    call = call_of(body, *shapes, dtype=dtype)
    read = [field for arg in call.args for field in (arg.fields if isinstance(arg, relax.Tuple) else [arg])]
    return kernel([call], list(dict.fromkeys(each for each in read if isinstance(each.ty, relax.TensorType))))


@pytest.mark.parametrize(
    ("body", "shapes", "operator"),
    [
        (op.add, [(3, 5), (5,)], "aten.add.out"),
        (op.matmul, [(3, 5), (5, 2)], "aten.matmul.out"),
        (lambda x: op.sum(x, axis=[1]), [(3, 5)], "aten.sum.IntList_out"),
        (lambda x, y: op.concat([x, y], axis=0), [(3, 5), (2, 5)], "aten.cat.out"),
        (lambda x: nn.softmax(x, axis=-1), [(3, 5)], "aten.softmax.int_out"),
        (lambda x: nn.avg_pool2d(x, (2, 2)), [(1, 3, 4, 4)], "aten.avg_pool2d.out"),
    ],
)
def test_an_overload_writes_the_result_in_place(body: Body, shapes: list[Any], operator: str) -> None:
    found = kernel_for(body, *shapes)
    assert (found.operator, found.writes, found.sources) == (operator, ["out"], [])


@pytest.mark.parametrize(
    ("body", "shapes", "operator", "sources"),
    [
        (lambda x: op.permute_dims(x, [1, 0]), [(3, 5)], "aten.permute.default", [(0, ())]),
        (lambda x: op.sort(x, axis=0), [(3, 5)], "aten.sort.stable", [(0, ())]),
        (
            lambda x: op.topk(x, k=2, axis=1, ret_type="both"),
            [(3, 5)],
            "aten.sort.stable",
            [(0, (("narrow", 1, 0, 2),)), (1, (("narrow", 1, 0, 2),))],
        ),
        (lambda x: op.astype(x, "int8"), [(3, 5)], "aten.alias.default", [(0, ())]),
    ],
)
def test_other_results_are_copied(
    body: Body, shapes: list[Any], operator: str, sources: list[tuple[int, Any]]
) -> None:
    found = kernel_for(body, *shapes)
    assert (found.operator, found.writes, found.sources) == (operator, (), sources)


def test_tensors_with_channels_last_are_seen_through_permutations() -> None:
    found = kernel_for(lambda x, w: nn.conv2d(x, w, **CHANNELS_LAST), (1, 5, 5, 4), (8, 3, 3, 4))
    first = [["permute", [0, 3, 1, 2]]]
    assert found.arguments[:2] == [{"view": [{"tensor": 0}, first]}, {"view": [{"tensor": 1}, first]}]
    assert [list(map(list, place)) for place in found.places] == [first]


@pytest.mark.parametrize(
    ("body", "shapes", "dtype", "reason"),
    [
        (lambda x, w: nn.conv2d(x, w, padding=[0, 1, 2, 1]), [(1, 3, 9, 8), (4, 3, 3, 3)], "float32",
         "it pads one side of an axis more than the other"),
        (lambda x, w: nn.conv2d(x, w), [(1, 3, 9, 8), (4, 3, 3, 3)], "int32", "for floats, not for int32"),
        (op.sign, [(3,)], "float32", "ATen's sign of NaN is 0"),
        (op.divide, [(3,), (3,)], "int32", "result 0 is int32, and ATen's is float32"),
        (op.floor_divide, [(3,), (3,)], "int32", "ATen divides no integers by 0 or -1"),
        (lambda x: op.mod(x, relax.const(-1, "int32")), [(3,)], "int32", "ATen divides no integers by 0 or -1"),
        (lambda x: op.cumsum(x, axis=0, exclusive=True), [(3,)], "float32", "it leaves out the element itself"),
        (lambda x: op.prod(x, axis=[0, 1]), [(3, 2)], "float32", "ATen's prod is over one axis"),
        (lambda x: op.strided_slice(x, [0], [4], [0], [-1]), [(5,)], "float32", "no views with negative steps"),
        (lambda x: op.take(x, relax.const(np.array([1, 0]), "int64"), axis=0, mode="clip"), [(5,)], "float32",
         "it takes with the mode clip"),
        (lambda x: nn.pad(x, [1, 1], pad_mode="reflect"), [(5,)], "float32", "it pads by reflect"),
        (lambda x: nn.max_pool2d(x, (2, 2), padding=(2, 2)), [(1, 2, 6, 6)], "float32", "ATen refuses it: "),
        (nn.relu, [(0, 5)], "float32", "a tensor has no elements"),
        (op.add, [(3,), (3,)], "uint16", "ATen has few operators for uint16"),
        (lambda x, g, b: nn.layer_norm(x, g, b, axes=[0]), [(3, 5), (3,), (3,)], "float32",
         "it does not normalise the last axes"),
    ],
)  # fmt: skip
def test_refusals(body: Body, shapes: list[Any], dtype: str, reason: str) -> None:
    found = why_not_call(call_of(body, *shapes, dtype=dtype))
    assert found is not None and reason in found


@pytest.mark.parametrize(
    ("packet", "named", "reason"),
    [
        ("no_such_operator", {}, "this version of ATen has no no_such_operator"),
        ("relu", {"slope": 0.1}, "no overload of ATen's relu takes its arguments"),
        ("softmax", {}, "no overload of ATen's softmax takes its arguments"),
    ],
)
def test_arguments_have_to_be_those_of_a_schema(packet: str, named: dict[str, Any], reason: str) -> None:
    call = call_of(nn.relu, (3,))
    with pytest.raises(NotAten, match=reason):
        kernel_of(AskedCall(packet, (Operand(call.args[0]),), named), call, [call.args[0]])


@pytest.mark.parametrize(
    ("body", "shapes", "reason"),
    [
        (
            lambda x, w, b: op.add(op.matmul(x, w), b),
            [(5, 7), (7, 3), (5, 1)],
            "neither a bias of the columns",
        ),
        (
            lambda x, w, b: op.add(op.matmul(x, w), b),
            [(2, 5, 7), (2, 7, 3), (3,)],
            "it is not rows times one",
        ),
    ],
)
def test_sums_that_a_product_does_not_take(body: Body, shapes: list[Any], reason: str) -> None:
    answers = list(TORCH.rule(host_target()).apply(DataflowGraph(function(body, *shapes))))
    assert any(isinstance(each, Declined) and reason in each.reason for each in answers)


def test_a_product_that_is_added_to_itself_is_declined() -> None:
    def doubled(x: relax.Expr, y: relax.Expr) -> relax.Expr:
        product = bound(op.matmul(x, y))
        return op.add(product, product)

    answers = list(TORCH.rule(host_target()).apply(DataflowGraph(function(doubled, (5, 7), (7, 3)))))
    assert not any(each.label == "linear" for each in answers if not isinstance(each, Declined))


def test_without_torch_everything_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_calls, "find_spec", lambda _: None)
    assert TORCH.why_unavailable() == why_not_call(call_of(nn.relu, (3,))) == torch_calls.MISSING


def test_approximations_are_not_exact() -> None:
    exact, approximate = call_of(op.add, (3,), (3,)), call_of(op.exp, (3,))
    assert TORCH.why_inexact([exact]) is None
    assert TORCH.why_inexact([exact, approximate]) == "ATen's exp is off in the last bits"
