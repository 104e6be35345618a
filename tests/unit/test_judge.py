"""Right or wrong: inputs that show it, tolerances, comparisons and votes."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from relax_calls import function
from tvm import relax
from tvm.script import relax as R

from unity_collage.annotations import LIFTED
from unity_collage.database.rows import FailureKind
from unity_collage.measure.compare import elected, why_wrong
from unity_collage.measure.inputs import edge_inputs, random_inputs
from unity_collage.measure.judge import TRUSTED, Trial, outvoted, trial_of, trials, why_not_expected
from unity_collage.measure.tolerance import tolerances

RIGHT = [np.array([1.0, 2.0], "float32")]


@pytest.mark.parametrize(
    ("got", "kind"),
    [
        ([1.00001, 2.0], None),
        ([1.0, 1.0], FailureKind.WRONG_NUMBERS),
        ([1.0, np.nan], FailureKind.NOT_FINITE),
        ([-np.inf, 2.0], FailureKind.NOT_FINITE),
    ],
)
def test_an_error_is_judged_by_the_range_of_the_output(got: list[float], kind: FailureKind | None) -> None:
    refusal = why_wrong([np.array(got, "float32")], RIGHT, [1e-4])
    assert (None if refusal is None else refusal.kind) == kind


@pytest.mark.parametrize("dtype", ["float32", "float16", ml_dtypes.bfloat16])
def test_nearly_infinite_is_infinite_but_a_number_is_not(dtype: type) -> None:
    most = float(ml_dtypes.finfo(dtype).max)
    right = np.array([np.inf, -np.inf, np.nan, 1.0]).astype(dtype)
    near = np.array([most, -np.inf, np.nan, 1.0]).astype(dtype)
    assert why_wrong([near], [right], [1e-3]) is None
    for got in ([1.0, -np.inf, np.nan, 1.0], [np.inf, np.inf, np.nan, 1.0], [np.inf, -np.inf, 1.0, 1.0]):
        refusal = why_wrong([np.array(got).astype(dtype)], [right], [1e-3])
        assert refusal is not None and refusal.kind == FailureKind.WRONG_NUMBERS


def test_integers_are_exact() -> None:
    assert why_wrong([np.array([1, 2])], [np.array([1, 2])], [0.0]) is None
    assert why_wrong([np.array([1, 3])], [np.array([1, 2])], [0.0]) is not None


@pytest.mark.parametrize(
    ("body", "dtype", "allowed"),
    [
        (lambda x: R.nn.relu(x), "float32", 0.0),
        (lambda x: R.permute_dims(x), "float16", 0.0),
        (lambda x: R.nn.max_pool2d(R.reshape(x, (1, 1, 4, 4))), "bfloat16", 1e-38),
        (lambda x: R.add(x, x), "float32", 5e-6),
        (lambda x: R.exp(x), "float32", 1e-4),
        (lambda x: R.nn.softmax(x), "float16", 1e-2),
        (lambda x: R.exp(x), "bfloat16", 5e-2),
        (lambda x: R.argmax(x), "float32", 0.0),
        (lambda x: R.astype(x, "bfloat16"), "float32", 4e-2),
        (lambda x: R.exp(R.astype(R.astype(x, "bfloat16"), "float32")), "float32", 5e-2),
        (lambda x: R.exp(R.astype(x, "float32")), "bfloat16", 1e-4),
    ],
)
def test_a_tolerance_depends_on_dtype_and_operators(
    body: Callable[..., relax.Expr], dtype: str, allowed: float
) -> None:
    assert tolerances(function(body, (4, 4), dtype=dtype)) == [allowed]


def test_a_product_of_tf32_has_the_tolerance_of_float16() -> None:
    func = function(R.matmul, (4, 4), (4, 4))
    rounded = func.with_attr("Composite", "cublas.tf32_algorithm0")
    assert (tolerances(func), tolerances(rounded)) == ([1e-4], [1e-2])


def drawn(
    body: Callable[..., relax.Expr], *shapes: tuple[int, ...], dtype: str = "float32"
) -> list[np.ndarray]:
    return edge_inputs(function(body, *shapes, dtype=dtype))


def test_edge_values_are_zeros_denormals_large_and_negative() -> None:
    (values,) = drawn(lambda x: R.nn.relu(x), (4096,))
    tiny = float(np.finfo("float32").tiny)
    assert np.any(values == 0) and np.any((values != 0) & (np.abs(values) < tiny))
    assert values.max() == 1000.0 and values.min() == -1000.0


def test_edge_values_stay_in_the_domain_of_the_operators() -> None:
    assert np.all(np.abs(drawn(lambda x: R.exp(x), (4096,))[0]) <= 50)
    assert np.all(drawn(lambda x: R.log(x), (4096,))[0] > 0)
    assert np.all(drawn(lambda x, y: R.divide(x, y), (4096,), (4096,))[1] != 0)
    product = drawn(lambda x, y: R.nn.softmax(R.matmul(x, y)), (64, 64), (64, 64))
    assert np.max(np.abs(product[0])) <= 4


def test_constants_are_the_same_in_every_trial() -> None:
    func = function(lambda x, y: R.add(x, y), (64,), (64,)).with_attr(LIFTED, 1)
    random, edges = random_inputs(func), edge_inputs(func)
    assert np.array_equal(random[1], edges[1]) and not np.array_equal(random[0], edges[0])


def test_sorting_has_no_equal_elements() -> None:
    (values,) = drawn(lambda x: R.argsort(x), (64,))
    assert len(np.unique(values)) == 64


def votes(**outputs: float) -> dict[str, list[np.ndarray]]:
    return {name: [np.array([value], "float32")] for name, value in outputs.items()}


def test_most_voices_win_and_a_tie_goes_to_the_trusted_one() -> None:
    assert elected(votes(a=1.0, b=1.0, c=2.0), [1e-4], "c") in ("a", "b")
    assert elected(votes(a=1.0, c=2.0), [1e-4], "c") == "c"
    assert elected(votes(a=1.0), [1e-4], "c") is None


def test_without_a_reference_kernels_vote_with_tvms_unscheduled_one(monkeypatch: pytest.MonkeyPatch) -> None:
    func = function(lambda x: R.exp(x), (1,))
    trial = Trial([np.zeros(1, "float32")], None)
    results = {name: [outputs] for name, outputs in votes(good=1.0, bad=3.0).items()}
    monkeypatch.setattr("unity_collage.measure.judge.unscheduled_outputs", lambda *_: [np.ones(1, "float32")])
    refused = outvoted(func, [trial], results)
    assert set(refused) == {"bad"} and refused["bad"].kind == FailureKind.WRONG_NUMBERS
    assert TRUSTED not in refused


def test_a_kernel_that_nobody_can_confirm_is_refused_without_blame(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_args: object) -> list[np.ndarray]:
        raise ValueError("TVM cannot build it")

    monkeypatch.setattr("unity_collage.measure.judge.unscheduled_outputs", cannot)
    trial, only = Trial([np.zeros(1, "float32")], None), votes(only=1.0)["only"]
    (refusal,) = outvoted(function(lambda x: R.exp(x), (1,)), [trial], {"only": [only]}).values()
    assert refusal.kind is None and "its numbers cannot be checked" in refusal.reason


def attention(query: relax.Expr, key: relax.Expr, value: relax.Expr) -> relax.Expr:
    scores = R.matmul(query, R.permute_dims(key))
    return R.matmul(R.nn.softmax(scores), value)


def test_inner_values_may_be_rounded_or_not_where_that_shows() -> None:
    """Scores of up to 500 in float16 are off by up to 0.13, so rounded ones give other weights."""
    func = function(attention, *[(64, 64)] * 3, dtype="float16").with_attr(LIFTED, 0)
    for trial in trials(func):
        query, key, value = (array.astype("float64") for array in trial.inputs)
        scores = query @ key.T
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        exact = (weights / weights.sum(axis=-1, keepdims=True) @ value).astype("float16")
        assert trial.expected is not None and trial.slack is not None
        assert why_not_expected(func, trial, trial.expected) is None
        assert why_not_expected(func, trial, [exact]) is None
        wrong = exact + np.float16(0.05) * np.abs(exact).max()
        assert why_not_expected(func, trial, [wrong]) is not None


def test_without_an_exponential_of_rounded_values_there_is_no_slack() -> None:
    product = function(R.matmul, (8, 8), (8, 8), dtype="float16")
    softmax = function(R.nn.softmax, (8, 8), dtype="float16")
    wide = function(attention, *[(8, 8)] * 3)
    for func in (product, softmax, wide):
        assert [trial.slack for trial in trials(func.with_attr(LIFTED, 0))] == [None, None]


def test_what_is_quantised_may_be_a_step_off_at_ties_alone() -> None:
    def body(x: relax.Var) -> relax.Expr:
        return R.quantize(x, R.const(1.0, "float32"), R.const(np.uint8(3)), out_dtype="uint8")

    func = function(body, (4,)).with_attr(LIFTED, 0)
    trial = trial_of(func, [np.array([10.49999, 10.6, 20.5, 300.0], "float32")])
    assert trial.expected is not None
    (right,) = trial.expected
    assert list(right) == [13, 14, 23, 255]
    for moved, is_right in (
        ([1, 0, 1, 0], True),
        ([0, -1, 0, 0], False),
        ([0, 0, 0, -1], False),
        ([2, 0, 0, 0], False),
    ):
        refusal = why_not_expected(func, trial, [(right + np.array(moved)).astype("uint8")])
        assert (refusal is None) == is_right


def test_what_is_quantised_in_a_trial_is_mostly_within_the_range() -> None:
    def body(x: relax.Var, weights: relax.Var, factors: relax.Var) -> relax.Expr:
        sums = R.matmul(x, weights, out_dtype="int32")
        real = R.multiply(R.astype(sums, "float32"), factors)
        return R.quantize(real, R.const(0.078125, "float32"), R.const(np.int8(3)), out_dtype="int8")

    kinds = [((16, 64), "uint8"), ((64, 32), "int8"), ((32,), "float32")]
    params = [relax.Var(f"x{i}", relax.TensorType(*kind)) for i, kind in enumerate(kinds)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(body(*params)))
        builder.emit_func_output(result)
    func = relax.transform.Normalize()(builder.get())["main"].with_attr(LIFTED, 2)
    (trial, _) = trials(func)
    assert trial.expected is not None
    (right,) = trial.expected
    assert np.isin(right, [-128, 127]).mean() < 0.25
    assert len(np.unique(right)) > 50
