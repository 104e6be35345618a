"""Our attention kernel, with every instruction set of this machine, against numpy in double."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm_ffi
from native_program import Program, View, random, row_major, run, seen_as

from unity_collage import runtime

if reason := runtime.why_unavailable("kernels"):
    pytest.skip(reason, allow_module_level=True)

runtime.load("kernels")
ISAS = [str(isa) for isa in tvm_ffi.get_global_func("collage.kernels.isas")()]

SHAPES = {
    "whole vectors": (1, 2, 32, 48, 16, 32),
    "odd numbers": (2, 3, 19, 37, 13, 21),
    "several blocks of rows": (1, 2, 71, 30, 8, 40),
    "one row": (2, 1, 1, 5, 8, 8),
    "one key": (1, 2, 7, 1, 4, 4),
    "one number": (1, 1, 3, 3, 1, 1),
    "keys a power of two": (1, 1, 5, 256, 8, 8),
    "several blocks of keys": (1, 2, 35, 2100, 5, 17),
}
"""Batch, heads, rows, keys, numbers in a query, numbers in a value."""

MASKS = ("none", "by key", "by row and key")


def exact(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, scale: float, mask: np.ndarray | None
) -> np.ndarray:
    """Of arrays [batch, heads, rows or keys, numbers]."""
    scores = query.astype("float64") @ np.swapaxes(key.astype("float64"), -1, -2) * scale
    scores = scores if mask is None else scores + mask
    with np.errstate(invalid="ignore"):
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        return shares / shares.sum(-1, keepdims=True) @ value


def by_head(view: View, batch: int, length: int, heads: int, size: int) -> View:
    """[batch, length, heads * size], as a projection leaves it, seen as [batch, heads, length, size]."""
    strides = [length * heads * size, size, heads * size, 1]
    return seen_as(view, [batch, heads, length, size], strides)


def turned(view: View) -> View:
    """The view with the last two dims exchanged."""
    *dims, a, b = view["dims"]
    *strides, s, t = view["strides"]
    return seen_as(view, [*dims, b, a], [*strides, t, s])


def mask_of(kind: str, batch: int, rows: int, keys: int) -> np.ndarray | None:
    shape = {"none": None, "by key": (batch, 1, 1, keys), "by row and key": (1, 1, rows, keys)}[kind]
    if shape is None:
        return None
    drawn = np.random.default_rng(5).random(shape)
    return np.where((drawn < 0.3) & (np.arange(keys) > 0), -np.inf, drawn).astype("float32")


def attend(
    shape: tuple[int, ...], arrays: tuple[np.ndarray, ...], mask: np.ndarray | None, scale: float = 0.3, **attrs: Any
) -> np.ndarray:  # fmt: skip
    """The result [batch, heads, rows, numbers] of arrays [batch, length, heads * numbers]."""
    batch, heads, rows, keys, size, value_size = shape
    program = Program()
    query, key, value = (program.input(*array.shape) for array in arrays)
    args = {
        "query": by_head(query, batch, rows, heads, size),
        "key": turned(by_head(key, batch, keys, heads, size)),
        "value": by_head(value, batch, keys, heads, value_size),
    }
    if mask is not None:
        strides = [0 if n == 1 else step for n, step in zip(mask.shape, row_major(mask.shape), strict=True)]
        strides[-1] = 1
        args["mask"] = seen_as(program.input(*mask.shape), [batch, heads, rows, keys], strides)
    args["dst"] = by_head(program.output(batch, rows, heads * value_size), batch, rows, heads, value_size)
    module = program.step("attention", args, scale=scale, **attrs).create("kernels")
    inputs = arrays if mask is None else (*arrays, mask)
    result = run(module, *inputs, out=(batch, rows, heads * value_size))
    return np.swapaxes(result.reshape(batch, rows, heads, value_size), 1, 2)


def drawn(shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    batch, heads, rows, keys, size, value_size = shape
    lengths = ((rows, size), (keys, size), (keys, value_size))
    return tuple(random(batch, length, heads * n, seed=i) for i, (length, n) in enumerate(lengths))


def expected(
    shape: tuple[int, ...], arrays: tuple[np.ndarray, ...], mask: np.ndarray | None, scale: float = 0.3
) -> np.ndarray:
    heads = shape[1]
    split = (np.swapaxes(a.reshape(*a.shape[:2], heads, -1), 1, 2) for a in arrays)
    return exact(*split, scale, mask)


def assert_close(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=3e-6 * np.nanmax(np.abs(want)))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("case", SHAPES)
def test_attention_agrees_with_numpy(case: str, kind: str, isa: str):
    shape = SHAPES[case]
    arrays, mask = drawn(shape), mask_of(kind, shape[0], *shape[2:4])
    assert_close(attend(shape, arrays, mask, isa=isa), expected(shape, arrays, mask))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("keys", [9, 2100])
def test_a_row_whose_keys_are_all_masked_is_what_the_formula_says(keys: int, isa: str):
    """No number for -infinity; the mean of the values for a large number, which leaves no difference of scores."""
    shape = (1, 1, 4, keys, 3, 5)
    arrays, mask = drawn(shape), np.zeros((1, 1, 4, keys), "float32")
    mask[..., 1, :], mask[..., 2, :] = -np.inf, -1e30
    mask[..., 3, : keys - 2] = -np.inf
    got, want = attend(shape, arrays, mask, isa=isa), expected(shape, arrays, mask)
    assert np.isnan(got[0, 0, 1]).all()
    assert_close(got[0, 0, 2], arrays[2][0].mean(0))
    assert_close(got[0, 0, [0, 3]], want[0, 0, [0, 3]])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_row_with_nan_of_any_bits_is_nan(bits: int, isa: str):
    """The NaN of CUDA has all bits set but the sign."""
    shape = (1, 1, 3, 9, 3, 5)
    mask = np.zeros((1, 1, 3, 9), "float32")
    mask.view("uint32")[0, 0, 1, 4] = bits
    got = attend(shape, drawn(shape), mask, isa=isa)
    np.testing.assert_array_equal(np.isnan(got[0, 0]), [[False] * 5, [True] * 5, [False] * 5])


@pytest.mark.parametrize("isa", ISAS)
def test_large_scores_do_not_overflow(isa: str):
    shape = (1, 2, 17, 23, 8, 8)
    arrays = drawn(shape)
    assert_close(attend(shape, arrays, None, 1000.0, isa=isa), expected(shape, arrays, None, 1000.0))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("keys", [11, 2100])
def test_keys_may_be_neighbours_instead_of_their_numbers(keys: int, isa: str):
    """Keys in memory as [numbers, keys]; no heads at all."""
    query, key, value = random(6, 7), random(7, keys, seed=1), random(keys, 9, seed=2)
    program = Program()
    args = {"query": program.input(6, 7), "key": program.input(7, keys), "value": program.input(keys, 9),
            "dst": program.output(6, 9)}  # fmt: skip
    module = program.step("attention", args, scale=1.0, isa=isa).create("kernels")
    got = run(module, query, key, value, out=(6, 9))
    assert_close(got, exact(query, key.T, value, 1.0, None))


@pytest.mark.parametrize("threads", [1, 3, 64])
def test_any_number_of_threads_gives_the_same_numbers(threads: int):
    shape = (1, 2, 71, 130, 32, 32)
    arrays = drawn(shape)
    before = runtime.num_threads()
    runtime.set_num_threads(threads)
    try:
        assert_close(attend(shape, arrays, None), expected(shape, arrays, None))
    finally:
        runtime.set_num_threads(before)


def four() -> tuple[Program, dict[str, View]]:
    program = Program()
    return program, {
        "query": program.input(4, 3),
        "key": turned(program.input(5, 3)),
        "value": program.input(5, 2),
        "dst": program.output(4, 2),
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"key": {"dims": [3, 4]}}, "the dims of 'value' do not fit"),
        ({"key": {"dims": [2, 5]}}, "the dims of 'key' do not fit"),
        ({"key": {"strides": [2, 2]}}, "neither keys nor their elements are contiguous"),
        ({"value": {"strides": [1, 5]}}, "a query, a value or a result are not contiguous"),
        ({"query": {"dims": [12], "strides": [1]}}, "'query' does not have two dims"),
    ],
)
def test_what_the_kernel_refuses_is_said_when_the_module_is_made(
    change: dict[str, dict[str, Any]], reason: str
):
    program, args = four()
    args = {name: view | change.get(name, {}) for name, view in args.items()}
    with pytest.raises(ValueError, match=reason) as error:
        program.step("attention", args, scale=1.0).create("kernels")
    assert "main, step 0 (attention)" in str(error.value)


def test_values_must_be_there():
    program, args = four()
    del args["value"]
    with pytest.raises(ValueError, match="argument 'value' is missing"):
        program.step("attention", args, scale=1.0).create("kernels")
