"""The other primitives of the oneDNN executor against numpy."""

import math

import numpy as np
import pytest
from native_program import Program, channels_last, random, run, seen_as

from unity_collage import runtime

pytestmark = pytest.mark.skipif(
    runtime.why_unavailable("onednn") is not None, reason=str(runtime.why_unavailable("onednn"))
)


def compute(primitive: str, x: np.ndarray, out: tuple[int, ...], **attrs: object) -> np.ndarray:
    """A program with one step from "src" to "dst"."""
    program = Program()
    program.step(primitive, {"src": program.input(*x.shape), "dst": program.output(*out)}, **attrs)
    return run(program.create("onednn"), x, out=out)


def close(result: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


ERF = np.vectorize(math.erf)
ELTWISE = {
    "relu": (0.1, 0.0, lambda x: np.where(x > 0, x, 0.1 * x)),
    "tanh": (0.0, 0.0, np.tanh),
    "elu": (0.7, 0.0, lambda x: np.where(x > 0, x, 0.7 * (np.exp(x) - 1))),
    "square": (0.0, 0.0, np.square),
    "abs": (0.0, 0.0, np.abs),
    "linear": (2.0, 3.0, lambda x: 2 * x + 3),
    "soft_relu": (1.0, 0.0, lambda x: np.log1p(np.exp(x))),
    "hardsigmoid": (0.2, 0.5, lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    "logistic": (0.0, 0.0, sigmoid),
    "exp": (0.0, 0.0, np.exp),
    "gelu_tanh": (0.0, 0.0, lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "gelu_erf": (0.0, 0.0, lambda x: x / 2 * (1 + ERF(x / math.sqrt(2)))),
    "swish": (1.0, 0.0, lambda x: x * sigmoid(x)),
    "clip": (-0.5, 0.5, lambda x: np.clip(x, -0.5, 0.5)),
    "clip_v2": (0.0, 0.8, lambda x: np.clip(x, 0, 0.8)),
    "pow": (2.0, 3.0, lambda x: 2 * x**3),
    "round": (0.0, 0.0, np.rint),
    "mish": (0.0, 0.0, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "hardswish": (1 / 6, 0.5, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
}


@pytest.mark.parametrize("algorithm", ELTWISE)
def test_eltwise(algorithm: str):
    alpha, beta, expected = ELTWISE[algorithm]
    x = random(3, 50)
    close(compute("eltwise", x, x.shape, algorithm=algorithm, alpha=alpha, beta=beta), expected(x))


@pytest.mark.parametrize(("algorithm", "expected"), [("sqrt", np.sqrt), ("log", np.log)])
def test_eltwise_of_positive_numbers(algorithm, expected):
    x = np.abs(random(3, 50)) + 0.1
    close(compute("eltwise", x, x.shape, algorithm=algorithm), expected(x))


BINARY = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "div": np.divide, "sub": np.subtract,
    "ge": np.greater_equal, "gt": np.greater, "le": np.less_equal, "lt": np.less, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip


@pytest.mark.parametrize("algorithm", BINARY)
@pytest.mark.parametrize("shape", [(4, 6, 5), (1, 6, 1), (1, 1, 1)])
def test_binary_broadcasts_the_second_operand(algorithm, shape):
    a, b = random(4, 6, 5), random(*shape, seed=1)
    program = Program()
    args = {"src0": program.input(*a.shape), "src1": program.input(*shape), "dst": program.output(*a.shape)}
    program.step("binary", args, algorithm=algorithm)
    close(run(program.create("onednn"), a, b, out=a.shape), BINARY[algorithm](a, b))


def windows(x: np.ndarray, value: float) -> np.ndarray:
    """All 3x3 windows of stride 2 of N,C,H,W, padded by one; last axis is the window."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=value)
    view = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    return view.reshape(*view.shape[:4], 9)


POOLING = {
    "max": lambda x: windows(x, -np.inf).max(-1),
    "avg_include_padding": lambda x: windows(x, 0).mean(-1),
    "avg_exclude_padding": lambda x: np.nanmean(windows(x, np.nan), -1),
}


@pytest.mark.parametrize("algorithm", POOLING)
def test_pooling_of_channels_last(algorithm):
    x = random(2, 7, 9, 16)
    expected = np.moveaxis(POOLING[algorithm](np.moveaxis(x, -1, 1)), 1, -1)
    program = Program()
    src, dst = program.input(*x.shape), program.output(*expected.shape)
    args = {
        "src": seen_as(src, [2, 16, 7, 9], channels_last([2, 16, 7, 9])),
        "dst": seen_as(dst, [2, 16, 4, 5], channels_last([2, 16, 4, 5])),
    }
    program.step(
        "pooling", args, algorithm=algorithm, kernel=[3, 3], strides=[2, 2], dilates=[0, 0], padding_l=[1, 1],
        padding_r=[1, 1],
    )  # fmt: skip
    close(run(program.create("onednn"), x, out=expected.shape), expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_and_its_logarithm(axis):
    x = random(4, 5, 6)
    expected = np.exp(x) / np.exp(x).sum(axis, keepdims=True)
    close(compute("softmax", x, x.shape, axis=axis), expected)
    close(compute("softmax", x, x.shape, axis=axis, algorithm="log"), np.log(expected))


@pytest.mark.parametrize("given", [(), ("scale",), ("shift",), ("scale", "shift")])
def test_layer_normalization_with_what_is_given(given):
    x, values = random(3, 7, 32), {"scale": random(32, seed=1), "shift": random(32, seed=2)}
    program = Program()
    args = {"src": program.input(*x.shape), "dst": program.output(*x.shape)}
    args |= {name: program.constant(values[name]) for name in given}
    program.step("layer_normalization", args, epsilon=1e-5)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    expected = expected * values["scale"] if "scale" in given else expected
    expected = expected + values["shift"] if "shift" in given else expected
    close(run(program.create("onednn"), x, out=x.shape), expected)


def test_batch_normalization_by_given_statistics():
    x, mean, variance = random(2, 16, 5, 5), random(16, seed=1), np.abs(random(16, seed=2)) + 0.5
    scale, shift = random(16, seed=3), random(16, seed=4)
    program = Program()
    args = {"src": program.input(*x.shape), "dst": program.output(*x.shape)}
    named = {"mean": mean, "variance": variance, "scale": scale, "shift": shift}
    args |= {name: program.constant(value) for name, value in named.items()}
    program.step("batch_normalization", args, epsilon=1e-5)
    mean, variance, scale, shift = (v.reshape(-1, 1, 1) for v in (mean, variance, scale, shift))
    close(
        run(program.create("onednn"), x, out=x.shape), (x - mean) / np.sqrt(variance + 1e-5) * scale + shift
    )


def test_concat_of_channels():
    a, b = random(2, 5, 5, 16), random(2, 5, 5, 8, seed=1)
    program = Program()
    views = [program.input(*x.shape) for x in (a, b)] + [program.output(2, 5, 5, 24)]
    seen = [
        seen_as(v, [2, c, 5, 5], channels_last([2, c, 5, 5])) for v, c in zip(views, (16, 8, 24), strict=True)
    ]
    program.step("concat", {"src0": seen[0], "src1": seen[1], "dst": seen[2]}, axis=1)
    close(run(program.create("onednn"), a, b, out=(2, 5, 5, 24)), np.concatenate([a, b], -1))


REDUCTION = {"max": np.max, "min": np.min, "sum": np.sum, "mul": np.prod, "mean": np.mean}


@pytest.mark.parametrize("algorithm", REDUCTION)
@pytest.mark.parametrize("axis", [1, (2, 3)])
def test_reduction(algorithm, axis):
    x = random(2, 6, 4, 5)
    expected = REDUCTION[algorithm](x, axis, keepdims=True)
    close(compute("reduction", x, expected.shape, algorithm=algorithm), expected)


def test_reduction_to_a_norm():
    x = random(2, 6, 4, 5)
    expected = np.sqrt(np.square(x).sum(3, keepdims=True) + 1e-6)
    close(compute("reduction", x, expected.shape, algorithm="norm_lp_sum", p=2.0, eps=1e-6), expected)


def test_resampling_nearest():
    x = random(1, 3, 4, 5)
    expected = x.repeat(2, 2).repeat(2, 3)
    close(compute("resampling", x, (1, 3, 8, 10), algorithm="nearest", factors=[2.0, 2.0]), expected)
    close(compute("resampling", x, (1, 3, 8, 10), algorithm="nearest"), expected)


def test_resampling_linear_uses_half_pixel_centres():
    x = random(1, 1, 1, 4)
    at = np.clip((np.arange(8) + 0.5) / 2 - 0.5, 0, 3)
    close(
        compute("resampling", x, (1, 1, 1, 8), algorithm="linear").ravel(),
        np.interp(at, np.arange(4), x.ravel()),
    )


def test_reorder_transposes():
    x = random(2, 3, 4, 5)
    program = Program()
    src, dst = program.input(*x.shape), program.output(2, 4, 5, 3)
    program.step("reorder", {"src": src, "dst": seen_as(dst, x.shape, channels_last(x.shape))})
    close(run(program.create("onednn"), x, out=(2, 4, 5, 3)), np.moveaxis(x, 1, -1))


def test_reorder_casts():
    x = random(3, 16)
    program = Program()
    src, low, dst = (
        program.input(*x.shape),
        program.temporary(*x.shape, dtype="int32"),
        program.output(*x.shape),
    )
    program.step("reorder", {"src": src, "dst": low}).step("reorder", {"src": low, "dst": dst})
    close(run(program.create("onednn"), x, out=x.shape), np.rint(x))


def test_lrn_across_channels():
    x = random(1, 8, 3, 3)
    padded = np.pad(np.square(x), ((0, 0), (2, 2), (0, 0), (0, 0)))
    total = sum(padded[:, i : i + 8] for i in range(5))
    attrs = {"algorithm": "across_channels", "local_size": 5, "alpha": 0.5, "beta": 0.75, "k": 2.0}
    close(compute("lrn", x, x.shape, **attrs), x / (2 + 0.5 / 5 * total) ** 0.75)


def test_prelu_with_a_slope_a_channel():
    x, slope = random(1, 8, 3, 3), random(1, 8, 1, 1, seed=1)
    program = Program()
    args = {
        "src": program.input(*x.shape),
        "weights": program.constant(slope),
        "dst": program.output(*x.shape),
    }
    program.step("prelu", args)
    close(run(program.create("onednn"), x, out=x.shape), np.where(x > 0, x, slope * x))


def test_inner_product_of_an_image():
    x, w, b = random(2, 8, 3, 3), random(10, 8, 3, 3, seed=1), random(10, seed=2)
    program = Program()
    args = {"src": program.input(*x.shape), "weights": program.constant(w), "bias": program.constant(b)}
    program.step("inner_product", args | {"dst": program.output(2, 10)})
    close(run(program.create("onednn"), x, out=(2, 10)), np.einsum("nchw,ochw->no", x, w) + b)


def test_shuffle_of_channels():
    x = random(1, 12, 2, 2)
    expected = x.reshape(1, 4, 3, 2, 2).swapaxes(1, 2).reshape(x.shape)
    close(compute("shuffle", x, x.shape, axis=1, group_size=3), expected)


def test_temporaries_carry_values_between_steps():
    x, w = random(5, 8), random(8, 8, seed=1)
    program = Program()
    first, second = program.temporary(5, 8), program.temporary(5, 8)
    weights = program.constant(w)
    program.step("matmul", {"src": program.input(5, 8), "weights": weights, "dst": first})
    program.step("eltwise", {"src": first, "dst": second}, algorithm="relu")
    program.step("matmul", {"src": second, "weights": weights, "dst": program.output(5, 8)})
    close(run(program.create("onednn"), x, out=x.shape), np.maximum(x @ w, 0) @ w)


def test_a_view_may_split_a_dim():
    x = random(4, 6)
    program = Program()
    src, dst = program.input(4, 6), program.output(2, 3, 4)
    program.step("reorder", {"src": seen_as(src, [2, 3, 4], [3, 1, 6]), "dst": dst})
    close(run(program.create("onednn"), x, out=(2, 3, 4)), x.reshape(4, 2, 3).transpose(1, 2, 0))


def test_what_the_library_cannot_do_is_refused_with_its_own_word():
    program = Program()
    args = {"src": program.input(4, 8, dtype="int32"), "dst": program.output(4, 8, dtype="int32")}
    program.step("reorder", args).step("softmax", args, axis=1)
    with pytest.raises(RuntimeError, match=r"^main, step 1 \(softmax\): oneDNN says unimplemented$"):
        program.create("onednn")


@pytest.mark.parametrize(
    ("primitive", "attrs", "reason"),
    [
        ("eltwise", {"algorithm": "sin"}, "eltwise has no algorithm 'sin'"),
        ("eltwise", {}, "'algorithm' is missing"),
        ("softmax", {"axis": "last"}, "'axis' has the wrong type"),
        ("pooling", {"algorithm": "max"}, "'strides' is missing"),
        ("binary", {"algorithm": "add"}, "argument 'src[01]' is missing"),
        ("layer_normalization", {}, "'epsilon' is missing"),
    ],
)
def test_an_incomplete_step_says_what_it_lacks(primitive, attrs, reason):
    program = Program()
    args = {"src": program.input(1, 2, 3, 4), "dst": program.output(1, 2, 3, 4)}
    with pytest.raises((ValueError, TypeError), match=rf"main, step 0 \({primitive}\): {reason}"):
        program.step(primitive, args, **attrs).create("onednn")


def test_there_are_no_64_bit_integers():
    program = Program()
    program.step("reorder", {"src": program.input(4, dtype="int64"), "dst": program.output(4)})
    with pytest.raises(ValueError, match=r"step 0 \(reorder\): oneDNN has no int64"):
        program.create("onednn")
