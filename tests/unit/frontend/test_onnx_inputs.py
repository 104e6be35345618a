"""The inputs of an ONNX model: free sizes, and those that a user fixes."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from unity_collage.errors import ModelError
from unity_collage.frontend.models import import_model


def model(*shapes: list[object] | None) -> onnx.ModelProto:
    """The sum of the first elements of inputs a, b, ..., which are of these shapes."""
    inputs = [
        helper.make_tensor_value_info("ab"[n], TensorProto.FLOAT, shape) for n, shape in enumerate(shapes)
    ]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["a"], ["y"])], "g", inputs, [helper.make_empty_tensor_value_info("y")]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def shapes_of(made: onnx.ModelProto, **fixed: object) -> list[str]:
    main = import_model(made, **fixed).mod["main"]
    return [str(param.ty.shape) for param in main.params]


@pytest.mark.parametrize(
    ("shapes", "fixed", "expected"),
    [
        ([["n", 3], ["n", 3]], {}, ["R.shape([n, 3])", "R.shape([n, 3])"]),
        ([["n", 3], ["n", 3]], {"dims": {"n": 2}}, ["R.shape([2, 3])", "R.shape([2, 3])"]),
        ([["n", 3], ["n", 3]], {"shapes": {"n": 2}}, ["R.shape([2, 3])", "R.shape([2, 3])"]),
        ([["n", 3], ["n", "m"]], {"shapes": {"b": (2, 4)}}, ["R.shape([2, 3])", "R.shape([2, 4])"]),
        ([["n", "n + m"], ["m"]], {}, ["R.shape([n, n + m])", "R.shape([m])"]),
        ([["n", "n + m"], ["m"]], {"dims": {"n": 2, "m": 5}}, ["R.shape([2, 7])", "R.shape([5])"]),
        ([["n", "2*n"]], {"dims": {"n": 3}}, ["R.shape([3, 6])"]),
        ([None], {"shapes": {"a": (2, 3)}}, ["R.shape([2, 3])"]),
        ([[0, 3]], {}, ["R.shape([a_0, 3])"]),  # exporters write 0 for any number
        ([["1_2", "1_2*3"]], {}, ["R.shape([v1_2, v1_2_3])"]),  # not 12
    ],
)
def test_sizes_are_free_or_fixed(
    shapes: list[list[object]], fixed: dict[str, object], expected: list[str]
) -> None:
    assert shapes_of(model(*shapes), **fixed) == expected


def test_dimensions_without_a_name_are_different() -> None:
    (shape,) = shapes_of(model([None, None]))
    assert shape == "R.shape([a_0, a_1])"


def test_a_sum_of_unknown_names_is_a_name() -> None:
    assert shapes_of(model(["batch", "past + length"])) == ["R.shape([batch, past___length])"]


@pytest.mark.parametrize(
    ("shapes", "fixed", "reason"),
    [
        ([["n"]], {"dims": {"m": 1}}, "the model has no dimension 'm'; its inputs are a(n)"),
        (
            [["batch"]],
            {"dims": {"batc": 1}},
            "the model has no dimension 'batc'; did you mean batch? Its inputs are a(batch)",
        ),
        ([["n"]], {"dims": {"a": 1}}, "the model has no dimension 'a'; its inputs are a(n)"),
        ([["n"]], {"shapes": {"c": (1,)}}, "the model has no input 'c'; its inputs are a(n)"),
        ([["n", 3]], {"shapes": {"a": (1, 4)}}, "the input 'a' is (n, 3) in the file, and 1, 4 is given"),
        (
            [["n", 3]],
            {"shapes": {"a": (1, 3, 4)}},
            "the input 'a' has 2 dimensions (n, 3), and 1, 3, 4 is given",
        ),
        ([["n"], ["n"]], {"shapes": {"a": (1,), "b": (2,)}}, "the dimension 'n' is given as 1 and as 2"),
        (
            [["a"]],
            {"shapes": {"a": 1}},
            "'a' is an input and a dimension of this name: give an input all its sizes",
        ),
        ([None], {}, "the input 'a' has no shape; give it with shapes={'a': (1, ...)} or --shape a=1,..."),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    shapes: list[list[object]], fixed: dict[str, object], reason: str
) -> None:
    with pytest.raises(ModelError) as raised:
        import_model(model(*shapes), **fixed)
    assert reason in str(raised.value)
