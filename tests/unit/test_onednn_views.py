"""The stride algebra under the lowerings, in plain numbers and against numpy's own strides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unity_collage.backends.native.program import View
from unity_collage.backends.native.views import (
    broadcast,
    is_channels_first,
    is_channels_last,
    merged,
    remap,
    row_major,
    same_strides,
    unrepeated,
)


def view(dims, strides, offset=0):
    return View("x", tuple(dims), tuple(strides), "float32", offset)


def addresses(seen: View) -> np.ndarray:
    """The element that each index of a view lies at."""
    grid = np.indices(seen.dims).reshape(len(seen.dims), -1)
    return (seen.offset + np.array(seen.strides) @ grid).reshape(seen.dims)


@pytest.mark.parametrize(
    ("shape", "strides", "dims", "steps"),
    [
        ((2, 3, 4), (12, 4, 1), (24,), (1,)),
        ((2, 3, 4), (3, 1, 6), (6, 4), ((1, 6))),
        ((1, 3, 1, 4), (99, 4, 99, 1), (12,), (1,)),
        ((2, 3, 4), (0, 0, 1), (6, 4), (0, 1)),
        ((1, 1), (7, 7), (1,), (1,)),
    ],
)
def test_neighbouring_dims_merge_where_strides_let_them(shape, strides, dims, steps):
    assert merged(shape, strides) == (dims, (steps,))


def test_several_strides_merge_only_where_all_agree():
    assert merged((2, 3, 4), (12, 4, 1), (0, 4, 1)) == ((2, 12), ((12, 1), (0, 1)))


@given(st.permutations([0, 1, 2, 3]), st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_a_view_of_a_permuted_tensor_reads_what_the_copy_would_hold(order, extents):
    source = np.arange(np.prod(extents)).reshape(extents)
    permuted = source.transpose(order)
    seen = view(permuted.shape, row_major(permuted.shape))
    moved = remap(seen, permuted.shape, [row_major(extents)[axis] for axis in order], "y")
    assert moved is not None
    assert np.array_equal(addresses(moved), permuted)


@given(st.permutations([0, 1, 2, 3]), st.lists(st.integers(1, 4), min_size=4, max_size=4), st.integers(1, 3))
def test_a_merged_view_of_a_permuted_tensor_is_right_or_refused(order, extents, cut):
    source = np.arange(np.prod(extents)).reshape(extents)
    permuted = source.transpose(order)
    flat = permuted.reshape(int(np.prod(permuted.shape[:cut])), -1)
    moved = remap(
        view(flat.shape, row_major(flat.shape)),
        permuted.shape,
        [row_major(extents)[axis] for axis in order],
        "y",
    )
    copied = not np.shares_memory(flat, source)
    assert (moved is None) == copied or (moved is not None and np.array_equal(addresses(moved), flat))
    if moved is not None:
        assert np.array_equal(addresses(moved), flat)


def test_a_slice_moves_the_offset():
    seen = view((4, 2), (2, 1))
    assert remap(seen, (4, 2), (6, 1), "y", offset=4) == View("y", (4, 2), (6, 1), "float32", 4)


def test_heads_of_an_attention_are_strides():
    heads = view((12, 128, 64), row_major((12, 128, 64)))
    moved = remap(heads, (1, 12, 128, 64), (98304, 64, 768, 1), "y")
    assert moved == View("y", (12, 128, 64), (64, 768, 1), "float32")


def test_rows_that_a_permutation_tears_apart_have_no_strides():
    assert remap(view((128, 768), (768, 1)), (1, 128, 12, 64), (98304, 64, 8192, 1), "y") is None


@pytest.mark.parametrize(
    ("shape", "wanted", "strides"),
    [
        ((5,), (3, 4, 5), (0, 0, 1)),
        ((4, 1), (3, 4, 5), (0, 1, 0)),
        ((), (3,), (0,)),
        ((3, 4), (3, 5), None),
        ((1, 3), (3,), None),
    ],
)
def test_broadcast_repeats_by_numpys_rule(shape, wanted, strides):
    assert broadcast(shape, wanted) == strides


def test_a_repeated_operand_is_laid_out_like_its_result():
    pixels = view((1, 8, 5, 5), (200, 1, 40, 8))
    channels = unrepeated(view((1, 8, 5, 5), (0, 1, 0, 0)), pixels)
    assert (channels.dims, channels.strides) == ((1, 8, 1, 1), (8, 1, 8, 8))


def test_layouts_are_told_apart():
    last, first = view((2, 8, 5, 6), (240, 1, 48, 8)), view((2, 8, 5, 6), (240, 30, 6, 1))
    assert is_channels_last(last)
    assert not is_channels_first(last)
    assert is_channels_first(first)
    assert not is_channels_last(first)
    assert not is_channels_last(view((2, 8, 5, 6), (480, 1, 96, 16)))
    assert same_strides(view((1, 8), (8, 1)), view((1, 8), (99, 1)))
    assert not same_strides(view((2, 8), (8, 1)), view((2, 8), (99, 1)))
