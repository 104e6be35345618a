"""The polynomials against numpy in double precision, and their behaviour at the ends of the range."""

import math

import numpy as np
import pytest
from schedule_checks import module, run, scheduled
from tvm import relax
from tvm.relax import op

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 100.0, -100.0, 1e-30, -1e-30], "float32")
LARGEST_WITH_EXP = np.float32(88.72283)
SWEEP = np.concatenate([np.linspace(-20, 20, 200_000), np.geomspace(1e-12, 1, 5_000)]).astype("float32")


def values(function, x):
    return run(module(function, [x.shape], ["float32"]), x)[0]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(
    ("function", "exact"),
    [(op.exp, np.exp), (op.tanh, np.tanh), (op.erf, np.vectorize(math.erf)), (op.sigmoid, sigmoid)],
)
def test_relative_error_is_below_half_a_millionth(function, exact):
    expected = exact(SWEEP.astype("float64"))
    error = np.abs(values(function, SWEEP) - expected) / np.maximum(np.abs(expected), 1e-30)
    assert error.max() < 5e-7


def test_exp_over_the_whole_range():
    x = np.linspace(-87.3, 88.7, 100_000).astype("float32")
    expected = np.exp(x.astype("float64"))
    assert (np.abs(values(op.exp, x) - expected) / expected).max() < 2e-7


def test_exp_at_the_last_float_that_has_one():
    last, beyond = values(
        op.exp, np.array([LARGEST_WITH_EXP, np.nextafter(LARGEST_WITH_EXP, np.float32(90))])
    )
    assert last == pytest.approx(math.exp(float(LARGEST_WITH_EXP)), rel=2e-7)
    assert beyond == np.inf


POSITIVE = np.geomspace(1.2e-38, 3e38, 200_000).astype("float32")
NEAR_ONE = (1 + np.concatenate([-np.geomspace(1e-7, 0.5, 20_000), np.geomspace(1e-7, 2, 20_000)])).astype(
    "float32"
)
UNIT = np.concatenate([np.linspace(-1, 1, 200_000), np.geomspace(1e-12, 1, 5_000)]).astype("float32")
WIDE = np.concatenate([np.linspace(-89.4, 89.4, 200_000), np.geomspace(1e-12, 1, 5_000)]).astype("float32")
EVERYWHERE = np.concatenate([POSITIVE, -POSITIVE])


@pytest.mark.parametrize(
    ("function", "exact", "x"),
    [
        (op.log, np.log, POSITIVE),
        (op.log, np.log, NEAR_ONE),
        (op.atan, np.arctan, SWEEP),
        (op.atan, np.arctan, EVERYWHERE),
        (op.asin, np.arcsin, UNIT),
        (op.acos, np.arccos, UNIT),
        (op.sinh, np.sinh, WIDE),
        (op.cosh, np.cosh, WIDE),
    ],
)
def test_relative_error_of_what_is_less_common(function, exact, x):
    expected = exact(x.astype("float64"))
    error = np.abs(values(function, x) - expected) / np.maximum(np.abs(expected), 1e-37)
    assert error.max() < 5e-7


def test_log_of_denormal_numbers():
    x = np.geomspace(2e-45, 1.1e-38, 1000).astype("float32")
    np.testing.assert_allclose(values(op.log, x), np.log(x.astype("float64")), rtol=5e-7)


def test_isnan_is_that_of_numpy():
    np.testing.assert_array_equal(values(op.isnan, SPECIAL), np.isnan(SPECIAL))


def test_silu_is_one_quotient():
    assert scheduled(op.nn.silu, (4096,)).count(" / ") == 1


def test_other_quotients_stay():
    one = relax.const(np.float32(1))
    text = scheduled(lambda x, y: op.multiply(x, op.divide(one, y)), (64, 64), (64, 64))
    assert "* (T.float32(1.0) / " in text


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (op.exp, [1, 1, np.inf, 0, np.nan, np.inf, 0, 1, 1]),
        (op.tanh, [0, 0, 1, -1, np.nan, 1, -1, 1e-30, -1e-30]),
        (op.sigmoid, [0.5, 0.5, 1, 0, np.nan, 1, 0, 0.5, 0.5]),
        (op.log, [-np.inf, -np.inf, np.inf, np.nan, np.nan, math.log(100), np.nan, math.log(1e-30), np.nan]),
        (op.atan, [0, 0, np.pi / 2, -np.pi / 2, np.nan, math.atan(100), -math.atan(100), 1e-30, -1e-30]),
        (op.asin, [0, 0, np.nan, np.nan, np.nan, np.nan, np.nan, 1e-30, -1e-30]),
        (op.acos, [np.pi / 2, np.pi / 2, np.nan, np.nan, np.nan, np.nan, np.nan, np.pi / 2, np.pi / 2]),
        (op.sinh, [0, 0, np.inf, -np.inf, np.nan, np.inf, -np.inf, 1e-30, -1e-30]),
        (op.cosh, [1, 1, np.inf, np.inf, np.nan, np.inf, np.inf, 1, 1]),
    ],
)
def test_special_values(function, expected):
    np.testing.assert_allclose(values(function, SPECIAL), expected, rtol=5e-7, atol=1e-37)


def test_silu_of_large_negative_numbers_is_zero_and_that_of_infinity_nan():
    """As the product of x and its sigmoid, in PyTorch and ONNX Runtime as well."""
    x = np.array([-np.inf, -3.4e38, -1e30, -100, 3.4e38, np.inf] * 8, "float32")
    expected = [np.nan, 0, 0, 0, 3.4e38, np.inf] * 8
    np.testing.assert_allclose(values(op.nn.silu, x), expected, rtol=5e-7, atol=1e-37)


@pytest.mark.parametrize(
    "function",
    [op.exp, op.tanh, op.sigmoid, op.log, op.atan, op.asin, op.acos, op.sinh, op.cosh, op.erf, op.nn.silu],
)
def test_nan_of_any_bits_stays_nan(function):
    """The NaN of CUDA has all bits set but the sign."""
    bits = [0x7FC00000, 0xFFC00000, 0x7FC00001, 0x7FFFFFFF, 0xFFFFFFFF]
    x = np.array(bits * 8, "uint32").view("float32")
    assert np.isnan(values(function, x)).all()


@pytest.mark.parametrize("exponent", [0.75, 0.5, -0.5, -0.75, 1.5, 2.25])
def test_quarter_powers(exponent):
    x = np.geomspace(1e-3, 1e3, 10_000).astype("float32")
    power = values(lambda a: op.power(a, relax.const(exponent)), x)
    expected = x.astype("float64") ** exponent
    assert (np.abs(power - expected) / expected).max() < 5e-7


@pytest.mark.parametrize("exponent", [0.3, math.inf, -math.inf, math.nan])
def test_other_powers_are_left_to_the_library(exponent):
    script = scheduled(lambda a: op.power(a, relax.const(exponent, "float32")), (100,))
    assert "T.pow" in script and "T.vectorized" in script


def test_double_precision_is_left_to_the_library():
    mod = module(op.exp, [(100,)], ["float64"])
    x = np.linspace(-1, 1, 100)
    np.testing.assert_allclose(run(mod, x)[0], np.exp(x), rtol=1e-15)


def test_no_library_call_is_left_in_a_float32_kernel():
    text = scheduled(lambda x: op.log(op.nn.gelu(op.tanh(op.sigmoid(op.exp(x))))), (64, 64))
    assert not any(f"T.{name}(" in text for name in ("exp", "tanh", "erf", "sigmoid", "log"))
