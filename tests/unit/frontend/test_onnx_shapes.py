"""Operators on shapes and parts: older versions, sizes that are symbolic, computed, or 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_case
import pytest

import unity_collage as uc
from unity_collage.errors import ModelError

rng = np.random.default_rng(5)
X = rng.standard_normal((2, 3, 4)).astype("float32")
ENDLESS = 2**63 - 1


def _check(op: str, inputs: dict[str, Any], outputs: int = 1, want: Any = None, **more: Any) -> None:
    model = onnx_case.one_node(op, inputs, outputs, **more)
    onnx_case.check(model, {name: array for name, array in inputs.items() if array is not None}, want=want)


@pytest.mark.parametrize("dims", [None, {"x": ["a", 3, "b"]}])
@pytest.mark.parametrize("constant", [["shape"], []])
@pytest.mark.parametrize("shape", [(0, -1), (4, 6), (-1, 2, 4), (1, 0, 2, 4, 1)])
def test_reshape(shape: tuple[int, ...], constant: list[str], dims: Any) -> None:
    _check("Reshape", {"x": X, "shape": np.int64(shape)}, constant=constant, dims=dims)


@pytest.mark.parametrize("constant", [["shape"], []])
def test_reshape_may_keep_zeros(constant: list[str]) -> None:
    empty = np.zeros((2, 0, 3), "float32")
    _check("Reshape", {"x": empty, "shape": np.int64((0, 5))}, opset=14, allowzero=1, constant=constant)


def test_reshape_refuses_other_numbers_of_elements() -> None:
    model = onnx_case.one_node("Reshape", {"x": X, "shape": np.int64((5, -1))}, constant=["shape"])
    with pytest.raises(ModelError, match="makes 24 elements"):
        onnx_case.run(model, {"x": X})


@pytest.mark.parametrize("axis", [0, 1, 3, -1])
@pytest.mark.parametrize("dims", [None, {"x": ["a", "b", 4]}])
def test_flatten(axis: int, dims: Any) -> None:
    _check("Flatten", {"x": X}, axis=axis, dims=dims)


def test_axes_are_attributes_in_old_versions() -> None:
    x = X.reshape(2, 1, 3, 1, 4)
    _check("Squeeze", {"x": x}, opset=11, axes=[1, -2])
    _check("Squeeze", {"x": x}, opset=11)
    _check("Unsqueeze", {"x": X}, opset=11, axes=[0, -1])


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ((1,), (ENDLESS,), (1,), (1,)),
        ((-1,), (-ENDLESS,), (2,), (-1,)),
        ((-3, 0), (-1, 5), (2, 0), (1, 1)),
        ((10,), (-10,), (1,), (-2,)),
        ((2,), (1,), (1,), (1,)),
        ((0, 3), (2, 0), (-2, -1), (1, -2)),
        ([-9], [-99], [1], [-1]),  # a begin before the first element is the first one
        ([-ENDLESS, -7], [-ENDLESS, 1], [0, 2], [-2, -1]),
    ],
)
@pytest.mark.parametrize("how", ["constant", "symbolic", "computed"])
def test_slice(starts: Any, ends: Any, axes: Any, steps: Any, how: str) -> None:
    inputs = {"x": X, "starts": np.int64(starts), "ends": np.int64(ends)}
    inputs |= {"axes": np.int64(axes), "steps": np.int64(steps)}
    if how == "computed":
        model = onnx_case.one_node("Slice", inputs)
        ((got,), (want,)) = _computed_slice(len(starts))(inputs), onnx_case.by_onnxruntime(model, inputs)
        assert (got.dtype, got.shape) == (want.dtype, want.shape) and np.array_equal(got, want)
        return
    constant = ["starts", "ends", "axes", "steps"]
    _check("Slice", inputs, constant=constant, dims={"x": ["a", "b", "c"]} if how == "symbolic" else None)


@cache
def _computed_slice(axes: int) -> Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]:
    """The slice of so many axes whose operands are all inputs, built once for all of them."""
    operands = {name: np.ones(axes, "int64") for name in ("starts", "ends", "axes", "steps")}
    return onnx_case.prepared(onnx_case.one_node("Slice", {"x": X, **operands}))


def test_slice_has_attributes_in_version_9() -> None:
    _check("Slice", {"x": X}, opset=9, starts=[1, -3], ends=[9, -1], axes=[1, 2])
    _check("Slice", {"x": X}, opset=9, starts=[0, 1], ends=[1, 2])


@pytest.mark.parametrize(
    ("opset", "inputs", "outputs", "attributes"),
    [
        (11, {}, 2, {"axis": 2}),
        (11, {}, 3, {"axis": -1, "split": [1, 0, 3]}),
        (13, {"split": np.int64([3, 1])}, 2, {"axis": 2}),
        (18, {}, 3, {"axis": 2, "num_outputs": 3}),
    ],
)
@pytest.mark.parametrize("dims", [None, {"x": ["a", "b", "c"]}])
def test_split(opset: int, inputs: Any, outputs: int, attributes: Any, dims: Any) -> None:
    if dims and "split" in attributes:
        dims = {"x": ["a", "b", 4]}
    _check("Split", {"x": X, **inputs}, outputs, opset=opset, constant=list(inputs), dims=dims, **attributes)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("pads", [(0, 1, 2, 0, 2, 1), (0, 0, 5, 1, 0, 7)])
def test_pad(mode: str, constant: bool, pads: tuple[int, ...]) -> None:
    widths = list(zip(pads[:3], pads[3:], strict=True))
    want = np.pad(X, widths, mode, **({"constant_values": 2.5} if mode == "constant" else {}))
    inputs = {"x": X, "pads": np.int64(pads), "value": np.float32(2.5)}
    _check("Pad", inputs, want=[want], opset=19, constant=["pads"] if constant else [], mode=mode)


def test_pads_may_be_negative_and_for_some_axes() -> None:
    _check("Pad", {"x": X, "pads": np.int64([0, -1, 2, 0, 0, -1])}, constant=["pads"])
    inputs = {"x": X, "pads": np.int64([1, -1]), "value": None, "axes": np.int64([-1])}
    _check("Pad", inputs, opset=18, constant=["pads", "axes"])
    _check("Pad", {"x": X}, opset=7, pads=[0, 1, 0, 0, 0, 2], value=1.5)
    _check("Pad", {"x": X, "pads": np.int64([0, 1, 0, 0, 0, 2])}, opset=13, constant=["pads"])
    infinite = {"x": X, "pads": np.int64([0, 1, 0, 0, 0, 2]), "value": np.float32(-np.inf)}
    _check("Pad", infinite, opset=13, constant=["pads", "value"])


@pytest.mark.parametrize("constant", [["shape"], []])
@pytest.mark.parametrize("dims", [None, {"x": ["a", 1, "c"]}])
def test_expand(constant: list[str], dims: Any) -> None:
    x = X[:, :1]
    for shape in ((5, 2, 1, 4), (3, 1), (1,)):
        _check("Expand", {"x": x, "shape": np.int64(shape)}, constant=constant, dims=dims)


@pytest.mark.parametrize("constant", [["repeats"], []])
def test_tile(constant: list[str]) -> None:
    _check("Tile", {"x": X, "repeats": np.int64([1, 2, 3])}, constant=constant, dims={"x": ["a", 3, "c"]})
    _check("Tile", {"x": X, "repeats": np.int64([1, 0, 3])}, constant=constant)


def test_concat_takes_one_operand_and_empty_ones() -> None:
    _check("Concat", {"x": X}, axis=-1)
    _check("Concat", {"x": X, "y": X[:, :0], "z": X}, axis=1)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_and_space(mode: str) -> None:
    x = rng.standard_normal((2, 8, 4, 6)).astype("float32")
    _check("DepthToSpace", {"x": x}, blocksize=2, mode=mode, dims={"x": ["n", 8, "h", "w"]})
    _check("SpaceToDepth", {"x": x}, blocksize=2)


@pytest.mark.parametrize(
    ("start", "limit", "delta"),
    [(np.int64(3), np.int64(12), np.int64(4)), (np.int32(5), np.int32(-4), np.int32(-3)),
     (np.float32(1), np.float32(2.05), np.float32(0.25)), (np.float64(1), np.float64(5), np.float64(-1))],
)  # fmt: skip
def test_range(start: Any, limit: Any, delta: Any) -> None:
    _check("Range", {"start": np.array(start), "limit": np.array(limit), "delta": np.array(delta)})


@pytest.mark.parametrize("constant", [["depth"], []])
@pytest.mark.parametrize("axis", [-1, 0, -2])
def test_one_hot(constant: list[str], axis: int) -> None:
    inputs = {"i": np.int64([[0, -1], [4, -5], [2, 1]]), "depth": np.array(5.0, "float32")}
    _check("OneHot", {**inputs, "values": np.float32([0.5, 2])}, opset=11, constant=constant, axis=axis)


FITTING: dict[str, tuple[str, dict[str, np.ndarray], list[str], dict[str, Any], Any]] = {
    "a split": ("Split", {"x": X, "split": np.int64((1, 1))}, ["split"], {"x": ["n", 3, 4]}, (3, 3, 4)),
    "the rest of a reshape": (
        "Reshape",
        {"x": X, "shape": np.int64((-1, 8))},
        ["shape"],
        {"x": ["n", 3, "m"]},
        (1, 3, 4),
    ),
    "all sizes of a reshape": (
        "Reshape",
        {"x": X, "shape": np.int64((6, 4))},
        ["shape"],
        {"x": ["n", 3, 4]},
        (3, 3, 4),
    ),
    "a computed reshape": ("Reshape", {"x": X, "shape": np.int64((4, 6))}, [], {}, (4, 3, 4)),
    "indices of elements": (
        "GatherElements",
        {"x": X, "i": np.zeros((2, 3, 4), "int64")},
        [],
        {"x": [2, "n", 4]},
        (2, 2, 4),
    ),
    "the largest elements": (
        "TopK",
        {"x": X, "k": np.int64((3,))},
        ["k"],
        {"x": [2, 3, "n"]},
        (2, 3, 2),
    ),
    "a removed axis": (
        "Squeeze",
        {"x": X[:1], "axes": np.int64((0,))},
        ["axes"],
        {"x": ["n", 3, 4]},
        (2, 3, 4),
    ),
}


@pytest.mark.parametrize("case", FITTING)
def test_free_sizes_that_do_not_fit_end_the_program(case: str) -> None:
    op, inputs, constant, dims, other = FITTING[case]
    outputs = 2 if op in ("Split", "TopK") else 1
    model = onnx_case.one_node(op, inputs, outputs, constant=constant, dims=dims)
    feeds = {name: array for name, array in inputs.items() if name not in constant}
    onnx_case.check(model, feeds)
    call = onnx_case.prepared(model)
    wrong = feeds | {"x": np.zeros(other, "float32")} if dims else feeds | {"shape": np.int64((4, 7))}
    with pytest.raises(Exception, match="match_cast"):
        call(wrong)


@pytest.mark.parametrize(
    ("left", "right", "good", "bad"),
    [
        (["n", 3, 4], ["m", 4, 5], ((2, 3, 4), (1, 4, 5)), ((2, 3, 4), (3, 4, 5))),
        (["n", 3, "k"], ["m", "j", 5], ((1, 3, 4), (3, 4, 5)), ((3, 3, 4), (3, 6, 5))),
        (["k"], [4, 5], ((4,), (4, 5)), ((3,), (4, 5))),
        ([2, 3, 4], ["j"], ((2, 3, 4), (4,)), ((2, 3, 4), (5,))),
    ],
)
def test_products_of_free_sizes(left: Any, right: Any, good: Any, bad: Any) -> None:
    feeds = {
        name: rng.standard_normal(shape).astype("float32") for name, shape in zip("ab", good, strict=True)
    }
    model = onnx_case.one_node("MatMul", feeds, dims={"a": left, "b": right})
    onnx_case.check(model, feeds)
    with pytest.raises(Exception, match="match_cast"):
        onnx_case.prepared(model)(
            {name: np.zeros(shape, "float32") for name, shape in zip("ab", bad, strict=True)}
        )


def test_no_axes_are_all_axes_of_size_1() -> None:
    _check("Squeeze", {"x": X[:, None], "axes": np.zeros(0, "int64")}, constant=["axes"])


def test_a_cast_of_sizes_has_its_type() -> None:
    nodes = [
        onnx.helper.make_node("Shape", ["x"], ["sizes"]),
        onnx.helper.make_node("Cast", ["sizes"], ["y"], to=onnx.TensorProto.INT32),
    ]
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, 4])
    graph = onnx.helper.make_graph(nodes, "g", [x], [onnx.helper.make_empty_tensor_value_info("y")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=10)
    onnx_case.check(model, {"x": X})


@pytest.mark.parametrize(
    ("op", "inputs", "more", "reason"),
    [
        (
            "QuantizeLinear",
            {"x": X, "s": np.ones(5, "float32")},
            {"axis": 1},
            r"its scale has the shape \(5\)",
        ),
        (
            "DequantizeLinear",
            {"x": X.astype("int8"), "s": np.ones((2, 3, 3), "float32")},
            {"axis": 2, "block_size": 2, "opset": 21},
            r"and \(2, 3, 2\) fits",
        ),
        ("Einsum", {"x": X}, {"equation": "iij->ij"}, "an operand has the shape"),
        (
            "GridSample",
            {"x": X[None], "grid": np.zeros((2, 5, 5, 2), "float32")},
            {},
            r"its grid has the shape \(2, 5, 5, 2\), and \(1, 5, 5, 2\) fits",
        ),
        (
            "NegativeLogLikelihoodLoss",
            {"x": X, "target": np.zeros((2, 5), "int64")},
            {},
            "its target has the shape",
        ),
        *(
            (
                op,
                {"x": X, "i": np.zeros((1, 5, 4), "int64"), **more},
                {},
                "has the size 5, and at most 3 fits",
            )
            for op, more in (
                ("GatherElements", {}),
                ("ScatterElements", {"u": np.zeros((1, 5, 4), "float32")}),
            )
        ),
        (
            "ScatterElements",
            {"x": X, "i": np.zeros((2, 3, 4), "int64"), "u": X[:1]},
            {},
            r"its updates has the shape \(1, 3, 4\), and \(2, 3, 4\) fits",
        ),
        (
            "ScatterND",
            {"x": X, "i": np.zeros((5, 1), "int64"), "u": X},
            {},
            r"its updates has the shape \(2, 3, 4\), and \(5, 3, 4\) fits",
        ),
        (
            "GatherND",
            {"x": X, "i": np.zeros((3, 1), "int64")},
            {"batch_dims": 1},
            "the batch of its indices has the shape",
        ),
        ("ReverseSequence", {"x": X, "n": np.ones(2, "int64")}, {}, "sequence_lens has the shape"),
        (
            "OneHot",
            {"x": np.zeros(3, "int64"), "n": np.int64(4), "v": np.ones(1, "float32")},
            {},
            "its values has the shape",
        ),
        (
            "NonMaxSuppression",
            {"x": X[:1, :2], "scores": X[:1, 0:1], "n": np.int64(3)},
            {},
            r"boxes has the shape \(1, 2, 4\), and \(1, 4, 4\) fits",
        ),
        (
            "RoiAlign",
            {"x": X[None], "rois": X[0], "n": np.zeros(2, "int64")},
            {},
            "batch_indices has the shape",
        ),
        (
            "MaxUnpool",
            {"x": X[None], "i": np.zeros((1, 2, 3, 3), "int64")},
            {"kernel_shape": [2, 2]},
            "a tensor of indices has the shape",
        ),
        (
            "STFT",
            {"x": X[:, 0:1].reshape(2, 4, 1), "n": np.int64(1), "w": X[0, 0, :2], "size": np.int64(3)},
            {"constant": ["n", "size"]},
            "its window has the shape",
        ),
        (
            "Col2Im",
            {"x": X, "image": np.int64((4, 4)), "block": np.int64((1, 3))},
            {"opset": 18, "constant": ["image", "block"]},
            "its operand has the shape",
        ),
        (
            "AffineGrid",
            {"theta": X[:, :2, :3], "n": np.int64((3, 1, 4, 4))},
            {"opset": 20, "constant": ["n"]},
            "theta has the shape",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    op: str, inputs: dict[str, np.ndarray], more: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        onnx_case.run(onnx_case.one_node(op, inputs, **more), inputs)


@pytest.mark.parametrize("lengths", [(0, 0, 0), (1, 0, 2)])
def test_a_program_splits_by_lengths_that_it_computes(lengths: tuple[int, ...]) -> None:
    """The check that they fit is a cast of their sum; that of nothing subtracts 0 from it, and so nothing."""
    x = np.arange(sum(lengths), dtype=np.float32)
    model = onnx_case.one_node("Split", {"x": x, "split": np.int64(lengths)}, 3, opset=18)
    parts = uc.compile(model, measure=False)(x, np.int64(lengths))
    assert [part.numpy().tolist() for part in parts] == [
        [*map(float, part)] for part in np.split(x, np.cumsum(lengths)[:-1])
    ]
