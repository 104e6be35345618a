"""Reductions, scans, Einsum and the like, in the cases that the standard's node tests leave out."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_case import by_reference, check, one_node

from unity_collage.errors import ModelError
from unity_collage.frontend.onnx.importer import imported

_RNG = np.random.default_rng(0)
_X = _RNG.uniform(0.5, 2, (2, 3, 4)).astype("float32")
_REDUCTIONS = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]


@pytest.mark.parametrize("kind", _REDUCTIONS)
@pytest.mark.parametrize(("axes", "keepdims"), [([1], 1), ([-1, 0], 0), (None, 0)])
def test_axes_by_attribute(kind, axes, keepdims):
    given = {} if axes is None else {"axes": axes}
    check(one_node(f"Reduce{kind}", {"x": _X}, opset=11, keepdims=keepdims, **given), {"x": _X})


@pytest.mark.parametrize("kind", _REDUCTIONS)
def test_axes_when_the_program_runs(kind):
    feeds = {"x": _X, "axes": np.array([-1, 0], "int64")}
    check(one_node(f"Reduce{kind}", feeds, opset=18, keepdims=0), feeds)


@pytest.mark.parametrize("kind", ["Max", "Min"])
def test_nan_counts_along_axes_when_the_program_runs(kind):
    x = np.array([[np.nan, 1, 2], [1, np.nan, 2], [1, 2, np.nan]], "float32")
    feeds = {"x": x, "axes": np.array([1], "int64")}
    model = one_node(f"Reduce{kind}", feeds, opset=18)
    check(model, feeds, want=by_reference(model, feeds))


@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize("axes", [[], [1]])
def test_a_number_of_axes_that_is_not_known(axes, noop):
    feeds = {"x": _X, "axes": np.array(axes, "int64")}
    model = one_node("ReduceSum", feeds, opset=13, dims={"axes": ["count"]}, noop_with_empty_axes=noop)
    check(model, feeds)


def test_unknown_rank_is_refused():
    feeds = {"x": _X, "axes": np.array([1], "int64")}
    with pytest.raises(ModelError, match="rank of the result"):
        imported(one_node("ReduceSum", feeds, opset=13, dims={"axes": ["count"]}, keepdims=0))


@pytest.mark.parametrize("kind", ["L1", "L2", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"])
def test_integers(kind):
    x = np.array([[3, -5, 7], [1, 2, -9]], "int32")
    check(one_node(f"Reduce{kind}", {"x": x}, opset=13), {"x": x})


def test_means_of_halves_are_summed_in_float32():
    x = np.full((2, 4000), 30, "float16")
    check(one_node("ReduceMean", {"x": x}, opset=13, axes=[1]), {"x": x}, want=[x[:, :1]])


def test_a_mean_of_nothing_is_nan():
    """ONNX calls it undefined. It is NaN in numpy, onnx's reference evaluator and PyTorch, and 0 in ONNX Runtime."""
    x = np.zeros((2, 0), "float32")
    want = np.full((2, 1), np.nan, "float32")
    check(one_node("ReduceMean", {"x": x}, opset=13, axes=[1]), {"x": x}, want=[want])


def test_symbolic_sizes():
    model = one_node("ReduceMean", {"x": _X}, opset=13, dims={"x": ["n", "m", 4]}, axes=[1])
    check(model, {"x": _X})


def test_log_sum_exp_of_large_and_infinite_numbers():
    x = np.array([[1000, 1001], [-np.inf, -np.inf], [np.inf, 0], [-1000, -1000]], "float32")
    want = np.logaddexp(x[:, 0], x[:, 1])[:, None]
    check(one_node("ReduceLogSumExp", {"x": x}, opset=13, axes=[1]), {"x": x}, want=[want])


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "float16"])
def test_places_of_extrema(op, last, dtype):
    x = np.array([[3, 1, 3, 1], [0, 0, 0, 0]], dtype)
    model = one_node(op, {"x": x}, opset=13, axis=1, select_last_index=last, keepdims=0)
    check(model, {"x": x}, want=by_reference(model, {"x": x}))


def test_places_of_infinities():
    x = np.array([[-np.inf, -np.inf, -np.inf], [np.inf, np.inf, 1], [1, np.nan, np.inf]], "float32")
    check(one_node("ArgMax", {"x": x}, opset=7, axis=1), {"x": x}, want=[np.array([[0], [0], [1]])])
    check(one_node("ArgMin", {"x": x}, opset=7, axis=1), {"x": x}, want=[np.array([[0], [2], [1]])])


@pytest.mark.parametrize("constant", [[], ["axis"]])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_cumulative_sums(constant, exclusive, reverse):
    feeds = {"x": _X, "axis": np.array(-2, "int32")}
    check(one_node("CumSum", feeds, opset=14, constant=constant, exclusive=exclusive, reverse=reverse), feeds)


@pytest.mark.parametrize("exclusive", [0, 1])
def test_cumulative_sums_backwards_of_a_free_extent(exclusive):
    operands, free = {"x": _X, "axis": np.array(1, "int32")}, {"x": ["a", "b", "c", "d"][: _X.ndim]}
    model = one_node(
        "CumSum", operands, opset=14, constant=["axis"], exclusive=exclusive, reverse=1, dims=free
    )
    check(model, operands)


def test_cumulative_sums_without_elements():
    feeds = {"x": np.zeros((2, 0), "float32"), "axis": np.array(1, "int64")}
    check(one_node("CumSum", feeds, opset=14, constant=["axis"]), feeds, want=[feeds["x"]])


@pytest.mark.parametrize("size", [1, 2, 5])
def test_determinants(size):
    x = _RNG.standard_normal((3, 2, size, size)).astype("float32")
    x[0, 0, 0, 0] = 0
    check(
        one_node("Det", {"x": x}, opset=11),
        {"x": x},
        want=[np.linalg.det(x.astype("float64")).astype("float32")],
    )


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("bhij,bhjd->bhid", [(2, 3, 4, 6), (2, 3, 6, 5)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("ji,kj", [(3, 4), (5, 3)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (6, 4, 5)]),
        ("...i->...", [(2, 3, 4)]),
        ("ii->i", [(4, 4)]),
        ("ii", [(4, 4)]),
        ("bii->b", [(2, 4, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("i,i->", [(3,), (3,)]),
        ("ij,ij->ij", [(3, 4), (3, 4)]),
        ("abc,cd,def->abef", [(2, 3, 4), (4, 5), (5, 6, 2)]),
        ("ijk,il->kl", [(2, 3, 4), (2, 5)]),
        ("ij,jk->ik", [(3, 1), (4, 5)]),
        (",i->i", [(), (3,)]),
        ("b n h w, n d -> b d h w", [(2, 3, 4, 5), (3, 6)]),
    ],
)
def test_einsum(equation, shapes):
    feeds = {f"x{n}": _RNG.standard_normal(shape).astype("float32") for n, shape in enumerate(shapes)}
    want = [np.einsum(equation.replace(" ", ""), *feeds.values())]
    check(
        one_node("Einsum", feeds, opset=12, equation=equation), feeds, want=[np.asarray(want[0], "float32")]
    )


def test_einsum_of_symbolic_sizes():
    feeds = {"a": _X, "b": _X}
    model = one_node(
        "Einsum", feeds, opset=12, dims={"a": ["n", "q", 4], "b": ["n", "k", 4]}, equation="nqd,nkd->nqk"
    )
    check(model, feeds, want=[np.einsum("nqd,nkd->nqk", _X, _X)])


def test_einsum_of_other_ranks_is_refused():
    with pytest.raises(ModelError, match="does not name the axes"):
        imported(one_node("Einsum", {"x": _X}, opset=12, equation="ij->i"))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignored", [None, 1])
def test_cross_entropy(reduction, ignored):
    feeds = {
        "scores": _RNG.standard_normal((4, 3, 2)).astype("float32"),
        "labels": np.array([[0, 1], [2, 1], [1, 0], [2, 2]], "int64"),
        "weights": np.array([0.5, 1, 2], "float32"),
    }
    given = {} if ignored is None else {"ignore_index": ignored}
    check(one_node("SoftmaxCrossEntropyLoss", feeds, 2, opset=13, reduction=reduction, **given), feeds)
