"""Broadcasting of free sizes, which may be 1 when the program runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from onnx_case import check, one_node
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


def table_of_positions() -> relax.VirtualMachine:
    """n rows, plus the first n rows of a table of 6, as PyTorch exports the positions of tokens."""
    table = numpy_helper.from_array(np.arange(18, dtype=np.float32).reshape(6, 3), "table")
    bounds = [numpy_helper.from_array(np.array([n], np.int64), f"c{n}") for n in (0, 1)]
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Slice", ["shape", "c0", "c1"], ["rows"]),
        helper.make_node("Slice", ["table", "c0", "rows", "c0"], ["places"]),
        helper.make_node("Add", ["x", "places"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [table, *bounds])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    mod = import_model(model).mod
    assert str(mod["main"].ret_ty.shape.values[0]) == "n"
    return relax.VirtualMachine(relax.build(mod, tvm.target.Target("llvm")), tvm.cpu())


def test_the_first_rows_of_a_table_have_the_size_of_what_they_are_added_to() -> None:
    machine = table_of_positions()
    for rows in (1, 4, 6, 0):
        x = numbers(rows, 3)
        got = machine["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_array_equal(got, x + np.arange(18, dtype=np.float32).reshape(6, 3)[:rows])
    with pytest.raises(Exception, match=r"match_cast|mismatch"):
        machine["main"](tvm.runtime.tensor(numbers(7, 3)))


@cache
def enlarged(op: str, **attributes: int) -> relax.VirtualMachine:
    """x of any height, which is halved and doubled again, with x."""
    scales = numpy_helper.from_array(np.array([1, 1, 2, 1], np.float32), "scales")
    nodes = [
        helper.make_node("MaxPool", ["x"], ["half"], kernel_shape=[2, 1], strides=[2, 1]),
        helper.make_node("Resize", ["half", "", "scales"], ["again"], mode="nearest"),
        helper.make_node(op, ["again", "x"], ["y"], **attributes),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, "h", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [scales])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    mod = import_model(model).mod
    assert "h" in str(mod["main"].ret_ty.shape.values[2]), "the size of the result is known"
    return relax.VirtualMachine(relax.build(mod, tvm.target.Target("llvm")), tvm.cpu())


@pytest.mark.parametrize("op", ["Add", "Concat"])
def test_an_image_that_was_enlarged_meets_the_one_it_was_made_of(op: str) -> None:
    """2 (h // 2) is never 1, so the sum has that height. Those of an odd image do not fit."""
    machine = enlarged(op, **({"axis": 1} if op == "Concat" else {}))
    for height in (4, 6, 2):
        x = numbers(1, 2, height, 3)
        again = np.repeat(x.reshape(1, 2, height // 2, 2, 3).max(3), 2, 2)
        got = machine["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_array_equal(got, again + x if op == "Add" else np.concatenate([again, x], 1))
    with pytest.raises(Exception, match=r"match_cast|mismatch"):
        machine["main"](tvm.runtime.tensor(numbers(1, 2, 5, 3)))


@cache
def _shared(op: str, *shapes: tuple[object, ...]) -> relax.VirtualMachine:
    """The program, built once for all tests."""
    return program(op, *map(list, shapes))


def expanded(size: object, wanted: str, table: int | None = None) -> relax.VirtualMachine:
    """x of ``size`` elements, or the first n of ``table`` places, expanded to (2, n) or to (2, 3)."""
    initializers = [
        numpy_helper.from_array(np.array(value, np.int64), name)
        for name, value in {"zero": [0], "two": [2], "three": [3], "places": range(table or 1)}.items()
    ]
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=0, end=1),
        helper.make_node("Slice", ["places", "zero", "n", "zero"], ["first"]),
        helper.make_node("Concat", ["two", wanted], ["shape"], axis=0),
        helper.make_node("Expand", ["first" if table else "x", "shape"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [size])
    graph = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")], initializers)
    mod = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])).mod
    assert str(mod["main"].ret_ty.shape.values[1]) == ("T.int64(3)" if wanted == "three" else "n")
    return relax.VirtualMachine(relax.build(mod, tvm.target.Target("llvm")), tvm.cpu())


def test_the_first_places_of_a_table_are_expanded_to_the_number_of_tokens() -> None:
    """So BERT's position ids are exported."""
    machine = expanded("n", "n", table=6)
    for tokens in (1, 4, 6):
        got = machine["main"](tvm.runtime.tensor(numbers(tokens))).numpy()
        np.testing.assert_array_equal(got, np.broadcast_to(np.arange(tokens), (2, tokens)))
    with pytest.raises(Exception, match=r"match_cast|mismatch"):
        machine["main"](tvm.runtime.tensor(numbers(7)))


def test_a_free_size_is_expanded_to_a_number() -> None:
    machine = expanded("n", "three")
    for size in (1, 3):
        x = numbers(size)
        got = machine["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_array_equal(got, np.broadcast_to(x, (2, 3)))
    with pytest.raises(Exception, match=r"match_cast|mismatch"):
        machine["main"](tvm.runtime.tensor(numbers(2)))


def _of(shape: Sequence[int]) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def _bytes(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, shape).astype("uint8")


_SCALES = {"s": np.array(0.1, "float32"), "z": np.array(9, "uint8")}
_MS = {"domain": "com.microsoft"}
APART: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "fused product": ("FusedMatMul", {"a": _of([2, 3, 4]), "b": _of([2, 5, 4])}, {"transB": 1, **_MS}),
    "summand of a product": ("Gemm", {"a": _of([3, 4]), "b": _of([4, 5]), "c": _of([3, 1])}, {}),
    "bias": ("BiasGelu", {"a": _of([2, 3]), "b": _of([3])}, _MS),
    "skip": ("SkipLayerNormalization", {"a": _of([2, 3, 4]), "b": _of([2, 3, 4]), "g": _of([4])}, _MS),
    "sum of bytes": (
        "QLinearAdd",
        {"a": _bytes(2, 3), **_SCALES, "b": _bytes(3), "s2": _SCALES["s"], "z2": _SCALES["z"], "s3": _SCALES["s"],
         "z3": _SCALES["z"]},
        _MS,
    ),
    "sums of products": ("Einsum", {"a": _of([2, 3]), "b": _of([3, 4]), "c": _of([2])}, {"equation": "ij,jk,i->ik"}),
    "attention": (
        "MultiHeadAttention",
        {"a": _of([2, 3, 8]), "b": _of([2, 5, 8]), "v": _of([2, 5, 8]), "": None,
         "m": np.tril(np.ones([2, 5], "int32"), 3), "c": _of([1, 2, 3, 5])},
        {"num_heads": 2, **_MS},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("op", "feeds", "attributes"), APART.values(), ids=APART)
def test_sizes_that_have_other_names_are_compared_when_the_program_runs(
    op: str, feeds: dict[str, Any], attributes: dict[str, Any]
) -> None:
    dims = {
        name: [size if axis == 2 else f"{name}{axis}" for axis, size in enumerate(feeds[name].shape)]
        for name in feeds.keys() & {"a", "b", "v", "m", "c"}
    }
    weights = [name for name in feeds if name and name not in dims]
    check(one_node(op, feeds, dims=dims, constant=weights, **attributes), feeds, rtol=1e-4, atol=1e-4)
