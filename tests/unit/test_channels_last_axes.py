"""The algebra of layouts, on plain data."""

import numpy as np
import pytest

from unity_collage.layout.axes import (
    Dim,
    change,
    channels_last,
    padded,
    permuted,
    same_order,
    through_reshape,
    unpadded,
    with_new_axis,
    without,
)

NHWC = (0, 2, 3, 1)
N = Dim(1, (7,))
H = Dim(1, (8,))


def dims(*extents):
    return [extent if isinstance(extent, Dim) else Dim(extent) for extent in extents]


@pytest.mark.parametrize(("rank", "layout"), [(3, (0, 2, 1)), (4, NHWC), (5, (0, 2, 3, 4, 1))])
def test_channels_last_of_each_rank(rank, layout):
    assert channels_last(rank) == layout


def test_change_gives_the_axes_of_the_transpose_between_two_forms():
    x = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    source, target = NHWC, (3, 1, 0, 2)
    moved = x.transpose(source).transpose(change(source, target))
    assert np.array_equal(moved, x.transpose(target))


def test_permuted_data_shows_the_permuted_value_in_another_layout():
    x = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    axes = (0, 2, 1, 3)
    assert np.array_equal(x.transpose(axes).transpose(permuted(NHWC, axes)), x.transpose(NHWC))


def test_only_unit_axes_move_without_cost():
    assert same_order((0, 1, 2, 3), NHWC, is_unit=lambda axis: axis in (2, 3))
    assert not same_order((0, 1, 2, 3), NHWC, is_unit=lambda axis: axis == 2)


def test_axes_come_and_go():
    assert padded((1, 0), 4) == (0, 1, 3, 2)
    assert unpadded((0, 2, 3, 1), 3) == (1, 2, 0)
    assert without(NHWC, {2, 3}) == (0, 1)
    assert without(NHWC, {0}) == (1, 2, 0)
    assert with_new_axis(NHWC, 1) == (1, 0, 3, 4, 2)


@pytest.mark.parametrize(
    ("source", "target", "before", "after"),
    [
        (dims(2, 8, 5, 7), dims(2, 8, 35), NHWC, (0, 2, 1)),
        (dims(2, 8, 5, 7), dims(2, 2, 4, 5, 7), NHWC, (0, 3, 4, 1, 2)),
        (dims(2, 8, 5, 7), dims(2, 280), (0, 1, 2, 3), (0, 1)),
        (dims(2, 8, 5, 7), dims(2, 1, 8, 5, 7), NHWC, (0, 1, 3, 4, 2)),
        (dims(2, 8, 1, 1), dims(2, 8), NHWC, (0, 1)),
        (dims(1, 8, 5, 7), dims(8, 5, 7), NHWC, (1, 2, 0)),
        (dims(N, 8, 5, 7), dims(N, 8, 35), NHWC, (0, 2, 1)),
        (dims(N, 8, H, 7), dims(N, 8, H * Dim(7)), NHWC, (0, 2, 1)),
    ],
)
def test_a_reshape_between_runs_of_axes_keeps_the_layout(source, target, before, after):
    assert through_reshape(NHWC, source, target) == (before, after)


@pytest.mark.parametrize(
    ("source", "target"),
    [(dims(N, 8), dims(H, 8)), (dims(0, 4), dims(0, 5)), (dims(N, 8, 5, 7), dims(Dim(2, (7,)), 4, 5))],
)
def test_a_reshape_that_the_extents_do_not_prove_has_no_layout(source, target):
    assert through_reshape(tuple(range(len(source))), source, target) is None


@pytest.mark.parametrize("target", [(2, 3, 4, 35), (6, 4, 5, 7), (2, 12, 5, 7), (24, 35), (2, 3, 2, 2, 5, 7)])
def test_the_reshaped_form_holds_the_reshaped_value(target):
    x = np.arange(2 * 3 * 4 * 5 * 7).reshape(2, 3, 4, 5, 7)
    before, after = through_reshape((0, 3, 4, 2, 1), dims(*x.shape), dims(*target))
    data = x.transpose(before).reshape([target[axis] for axis in after])
    assert np.array_equal(data, x.reshape(target).transpose(after))
