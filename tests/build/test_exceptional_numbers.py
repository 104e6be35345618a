"""What TVM simplifies as if numbers were real is right for NaN, infinity and sums; empty tensors build."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from unity_collage.compiler import compile_with
from unity_collage.pipeline import collage
from unity_collage.testing.fixed_cost import FixedCost

NAN, INF = np.nan, np.inf
X = np.array([[NAN, INF, -INF, 0, 1, -1, 3e38, 1e-40]], "float32")
Z = np.zeros((1, 1), "float32")
BIG = np.full((1, 1), 1e8, "float32")


def number(value: float) -> relax.Expr:
    return relax.const(value, "float32")


def computed(make, *arrays: np.ndarray) -> Any:
    """``make`` of parameters like the arrays, compiled by TVM alone, for the arrays; a list if it is a tuple."""
    params = [
        relax.Var(f"x{i}", relax.TensorType(array.shape, str(array.dtype))) for i, array in enumerate(arrays)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(make(*params)))
        builder.emit_func_output(result)
    program = compile_with(collage(["tvm"], FixedCost({})), builder.finalize())
    result = program(*arrays)
    return result.numpy() if isinstance(result, tvm.runtime.Tensor) else [each.numpy() for each in result]


@pytest.mark.parametrize(
    ("make", "exact"),
    [
        (lambda x, z: op.equal(x, x), lambda x, z: x == x),
        (lambda x, z: op.not_equal(x, x), lambda x, z: x != x),
        (lambda x, z: op.logical_not(op.less(x, z)), lambda x, z: ~(x < z)),
        (lambda x, z: op.logical_not(op.greater_equal(x, z)), lambda x, z: ~(x >= z)),
        (lambda x, z: op.logical_or(op.less(x, z), op.greater_equal(x, z)), lambda x, z: (x < z) | (x >= z)),
        (lambda x, z: op.subtract(x, x), lambda x, z: x - x),
        (lambda x, z: op.multiply(x, number(0)), lambda x, z: x * 0),
        (lambda x, z: op.multiply(op.exp(x), number(0)), lambda x, z: np.exp(x) * 0),
        (lambda x, z: op.divide(number(0), x), lambda x, z: 0 / x),
        (lambda x, z: op.divide(x, number(0)), lambda x, z: x / 0),
        (lambda x, z: op.divide(x, number(-0.0)), lambda x, z: x / -0.0),
    ],
)
def test_identities_of_real_numbers_are_not_used(make, exact) -> None:
    with np.errstate(all="ignore"):
        expected = exact(X, Z)
    np.testing.assert_array_equal(computed(lambda x, z: make(x, op.add(z, z)), X, Z), expected)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x, y: op.subtract(op.add(x, y), y), [0, 8, -8]),
        (lambda x, y: op.subtract(x, op.add(y, x)), [-1e8, -1e8, -1e8]),
    ],
)
def test_sums_are_rounded_before_they_cancel(make, expected: list[float]) -> None:
    x = np.array([[1.3, 5.1, -5.1]], "float32")
    np.testing.assert_array_equal(computed(make, x, BIG), [expected])


@pytest.mark.parametrize(("make", "exact"), [(op.sinh, np.sinh), (op.cosh, np.cosh)])
@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-14), ("bfloat16", 1e-2)])
def test_hyperbolic_functions_of_all_types(make, exact, dtype: str, rtol: float) -> None:
    x = np.array([[NAN, INF, -INF, 0, 1, -1, 1e-9, 0.5, -30, 88]]).astype(dtype)
    wide = x.astype("float64")
    np.testing.assert_allclose(computed(make, x).astype("float64"), exact(wide), rtol=rtol)


def test_tanh_is_one_for_large_numbers() -> None:
    np.testing.assert_array_equal(computed(op.tanh, X[:, 1:3]), [[1, -1]])
    x = np.array([[-3e38, -1e9, -20, 1e9]], "float32")
    assert computed(op.nn.gelu_tanh, x) == pytest.approx(np.array([[0, 0, 0, 1e9]]), abs=1e-30)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.nn.log_softmax(x, 1),
        lambda x: op.nn.prelu(x, relax.const(np.ones(0, "float32")), 1),
        lambda x: op.add(op.astype(x, "float64"), relax.const(np.ones((1, 0)), "float64")),
        lambda x: op.concat([x, x], 1),
    ],
)
def test_tensors_without_elements_build(make) -> None:
    assert computed(make, np.empty((2, 0), "float32")).shape == (2, 0)


@pytest.mark.parametrize(
    ("make", "shapes", "expected"),
    [
        (lambda x: op.sum(x, [1]), [(2, 0)], 0),
        (lambda x: op.prod(x, [1]), [(2, 0)], 1),
        (op.matmul, [(2, 0), (0, 3)], 0),
        (lambda x, w: op.nn.conv2d(x, w), [(1, 0, 4, 4), (2, 0, 3, 3)], 0),
        (lambda x, w: op.nn.conv1d_transpose(x, w), [(1, 0, 4), (0, 2, 3)], 0),
    ],
)
def test_sums_and_products_of_no_numbers(make, shapes, expected: float) -> None:
    found = computed(make, *(np.empty(shape, "float32") for shape in shapes))
    assert found.size and np.all(found == expected)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_integers_are_divided_by_zero_without_a_trap(dtype: str) -> None:
    low, high = (getattr(np.iinfo(dtype), end) for end in ("min", "max"))
    unsigned = dtype.startswith("u")
    x = np.array([[7, high, low, low, 5, 7]], dtype)
    y = np.array([[0, 0, 0, high if unsigned else -1, 3, 2 if unsigned else -2]], dtype)
    found = computed(
        lambda x, y: relax.Tuple([op.divide(x, y), op.floor_divide(x, y), op.mod(x, y), op.floor_mod(x, y)]),
        x,
        y,
    )
    np.testing.assert_array_equal(found[0], [[0, 0, 0, 0 if unsigned else low, 1, 3 if unsigned else -3]])
    np.testing.assert_array_equal(found[1], [[0, 0, 0, 0 if unsigned else low, 1, 3 if unsigned else -4]])
    np.testing.assert_array_equal(found[2], [[0, 0, 0, 0, 2, 1]])
    np.testing.assert_array_equal(found[3], [[0, 0, 0, 0, 2, 1 if unsigned else -1]])


@pytest.mark.parametrize("divisor", [0, -1])
@pytest.mark.parametrize("make", [op.divide, op.floor_divide, op.mod, op.floor_mod])
def test_integers_are_divided_by_constants_that_trap(make, divisor: int) -> None:
    x = np.array([[7, -7, np.iinfo("int32").min]], "int32")
    expected = -x if divisor and make in (op.divide, op.floor_divide) else 0 * x
    np.testing.assert_array_equal(computed(lambda x: make(x, relax.const(divisor, "int32")), x), expected)


@pytest.mark.parametrize("exponent", [0.5, -0.5, 0.25, 1.5, -0.75])
def test_powers_are_not_roots_of_infinity_and_zero(exponent: float) -> None:
    x = np.array([[-INF, -0.0, 0, INF, 4, NAN, -1]], "float32")
    with np.errstate(all="ignore"):
        expected = np.power(x, np.full_like(x, exponent))  # with one exponent numpy takes roots
    found = computed(lambda x: op.power(x, number(exponent)), x)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(found[:, :5]), np.signbit(expected[:, :5]))


@pytest.mark.parametrize("make", [op.mean, op.variance, op.std])
def test_the_mean_of_no_numbers_is_nan(make) -> None:
    found = computed(lambda x: make(x, [1], keepdims=True), np.empty((2, 0), "float32"))
    np.testing.assert_array_equal(found, [[NAN], [NAN]])
