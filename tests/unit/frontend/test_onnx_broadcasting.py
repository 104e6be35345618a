"""Broadcasting of free sizes, which may be 1 when the program runs."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax

from unity_collage.frontend.models import import_model


def program(op: str, *shapes: list[object]) -> relax.VirtualMachine:
    """An operator of inputs of these shapes, built by TVM alone."""
    names = "abc"[: len(shapes)]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip(names, shapes, strict=True)
    ]
    graph = helper.make_graph(
        [helper.make_node(op, list(names), ["y"])], "g", inputs, [helper.make_empty_tensor_value_info("y")]
    )
    made: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    mod = import_model(made).mod
    return relax.VirtualMachine(relax.build(mod, tvm.target.Target("llvm")), tvm.cpu())


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


@pytest.mark.parametrize(
    ("a", "b"), [((3,), (3,)), ((1,), (3,)), ((3,), (1,)), ((0,), (1,)), ((1,), (0,)), ((0,), (0,))]
)
def test_two_free_sizes(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = numbers(*a), numbers(*b)
    got = _shared("Add", ("n",), ("m",))["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y)).numpy()
    np.testing.assert_array_equal(got, x + y)


@pytest.mark.parametrize("rows", [1, 4])
def test_a_free_size_and_a_number(rows: int) -> None:
    x, y = numbers(2, rows), numbers(2, 1, 4)
    got = _shared("Mul", (2, "n"), (2, 1, 4))["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y)).numpy()
    np.testing.assert_array_equal(got, x * y)


def test_three_operands() -> None:
    x, y, z = numbers(5), numbers(1), numbers(2, 5)
    machine = _shared("Max", ("n",), ("m",), (2, "k"))
    got = machine["main"](*map(tvm.runtime.tensor, (x, y, z))).numpy()
    np.testing.assert_array_equal(got, np.maximum(np.maximum(x, y), z))


def test_operator_sets_before_7_name_the_axis() -> None:
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"], broadcast=1, axis=1)],
        "g",
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, [2, 3, 4]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [3]),
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    mod = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)])).mod
    machine = relax.VirtualMachine(relax.build(mod, tvm.target.Target("llvm")), tvm.cpu())
    x, y = numbers(2, 3, 4), numbers(3)
    got = machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y)).numpy()
    np.testing.assert_array_equal(got, x + y[:, None])


def test_sizes_that_do_not_fit_end_the_program_with_an_error() -> None:
    machine = _shared("Add", ("n",), ("m",))
    with pytest.raises(Exception, match=r"match_cast|mismatch"):
        machine["main"](tvm.runtime.tensor(numbers(2)), tvm.runtime.tensor(numbers(3)))


@cache
def _shared(op: str, *shapes: tuple[object, ...]) -> relax.VirtualMachine:
    """The program, built once for all tests."""
    return program(op, *map(list, shapes))
