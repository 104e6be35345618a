"""The picture of a plan: repeated blocks, rows, places, and colours. Plain data, no browser."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace
from importlib import resources

import pytest

from unity_collage.plan.explanation import (
    ExplainedBinding,
    ExplainedCandidate,
    ExplainedCost,
    ExplainedKernel,
    Explanation,
    Proof,
    Verdict,
)
from unity_collage.report.picture import picture_of
from unity_collage.report.picture.columns import GAP, places
from unity_collage.report.picture.folding import Fold, folded
from unity_collage.report.picture.rows import LONGEST, in_rows


def chain(number: int) -> list[tuple[int, ...]]:
    """Each kernel reads from the one before."""
    return [(kernel - 1,) if kernel else () for kernel in range(number)]


def counts(items: tuple) -> list[tuple[int, int, int]]:
    """First kernel, size and count of each block."""
    return [(item.first, item.size, item.count) for item in items if isinstance(item, Fold)]


@pytest.mark.parametrize(
    ("kinds", "blocks"),
    [
        ("abcabcabc", [(0, 3, 3)]),
        ("sabababt", [(1, 2, 3)]),
        ("aababab", [(1, 2, 3)]),
        ("abab", [(0, 2, 2)]),
        ("abcd", []),
        ("aaa", []),  # three single kernels stay visible
        ("aaaa", [(0, 1, 4)]),
        ("abababxcdcdcd", [(0, 2, 3), (7, 2, 3)]),
        ("", []),
    ],
)
def test_equal_consecutive_blocks_are_folded(kinds: str, blocks: list[tuple[int, int, int]]) -> None:
    assert counts(folded(kinds, chain(len(kinds)))) == blocks


def test_every_kernel_is_in_one_item_in_its_order() -> None:
    numbers: list[int] = []
    for item in folded("sababaxyxyxyt", chain(13)):
        numbers += range(item.first, item.stop) if isinstance(item, Fold) else [item]
    assert numbers == list(range(13))


def test_blocks_inside_a_block_are_folded_too() -> None:
    (outer,) = folded("baaaabaaaab" + "aaaa", chain(15))
    assert (outer.size, outer.count) == (5, 3)
    assert counts(outer.body) == [(1, 1, 4)]


def test_a_block_begins_where_the_fewest_values_cross() -> None:
    # Residual layers: b adds what a has read. Of abababa, a copy (a, b) has one value in and one out; (b, a) has two.
    reads = [(), (0,), (0, 1), (2,), (2, 3), (4,), (4, 5), (6,)]
    assert counts(folded("sabababa", reads)) == [(1, 2, 3)]
    reads = [(), (0,), (1,), (1, 2), (3,), (3, 4), (5,), (5, 6)]
    assert counts(folded("sbababab", reads)) == [(2, 2, 3)]


def test_blocks_with_other_reads_inside_are_not_equal() -> None:
    straight = [(), (0,), (1,), (2,), (3,), (4,), (5,), (6,), (7,)]
    parallel = [(), (0,), (1,), (2,), (3,), (4,), (5,), (5,), (6, 7)]
    assert counts(folded("abcabcabc", straight)) == [(0, 3, 3)]
    assert counts(folded("abcabcabc", parallel)) == [(0, 3, 2)]


def test_each_line_goes_down_through_a_bend_in_every_row_between() -> None:
    edges = [(0, 1), (1, 2), (2, 3), (0, 3)]
    rows = in_rows(4, edges)
    row_of = rows.row_of
    assert [row_of[item] for item in range(4)] == [0, 1, 2, 3]
    assert [row_of[bend] for bend in rows.bends[0, 3]] == [1, 2]
    assert rows.bends[0, 1] == ()


def test_the_lines_of_one_source_share_their_bends() -> None:
    rows = in_rows(4, [(0, 1), (0, 2), (0, 3), (1, 2), (2, 3)])
    assert rows.bends[0, 3][:1] == rows.bends[0, 2]


def test_very_long_lines_have_no_bends() -> None:
    number = LONGEST + 10
    rows = in_rows(number, [*((i, i + 1) for i in range(number - 1)), (0, number - 1)])
    assert rows.bends[0, number - 1] == ()


def test_crossings_that_can_be_avoided_are_avoided() -> None:
    rows = in_rows(4, [(0, 3), (1, 2)])
    upper, lower = rows.rows
    partner = {0: 3, 1: 2}
    assert [partner[node] for node in upper] == list(lower)


def test_nothing_overlaps_and_chains_are_straight() -> None:
    random.seed(1)
    edges = [(i - 1, i) for i in range(1, 60)] + [
        (max(0, i - random.randint(2, 6)), i) for i in range(2, 60, 3)
    ]
    rows = in_rows(60, sorted(set(edges)))
    xs, width = places(rows, [100] * 60)
    size = lambda node: 100 if node < 60 else 0  # noqa: E731
    for row in rows.rows:
        for left, right in itertools.pairwise(row):
            assert xs[right] - xs[left] >= (size(left) + size(right)) / 2 + GAP - 1
    assert min(xs[:60]) - 50 >= 0
    assert max(xs[:60]) + 50 <= width
    chain_xs, chain_width = places(in_rows(5, [(i, i + 1) for i in range(4)]), [100] * 5)
    assert (set(chain_xs), chain_width) == ({50}, 100)


def explanation(kinds: str, reads: list[tuple[int, ...]]) -> Explanation:
    """A kernel for each letter; equal letters have one cost. Kernel i computes binding i."""
    costs = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    candidates = [
        ExplainedCandidate(i, "onednn", "r", kind, (i,), costs[kind], Verdict.CHOSEN)
        for i, kind in enumerate(kinds)
    ]
    return Explanation(
        Proof(1.0, 1.0, 0.0, True, "exact"),
        tuple(ExplainedBinding(f"v{i}", "relax.op", "float32 (2, 2)") for i in range(len(kinds))),
        tuple(ExplainedKernel(i, f"f{i}", read, inputs=read) for i, read in enumerate(reads)),
        tuple(candidates),
        tuple(ExplainedCost(kind, 1e-3) for kind in costs),
    )


def test_a_picture_has_a_frame_for_the_whole_and_one_for_each_repeated_block() -> None:
    picture = picture_of(explanation("sababab", [(), (0,), (0, 1), (2,), (2, 3), (4,), (4, 5)]))
    whole, block = picture["frames"]
    assert whole["items"] == [
        {"kernel": 0},
        {"frame": 1, "first": 1, "size": 2, "count": 3, "chained": True},
    ]
    assert [edge[:2] + edge[3:] for edge in whole["edges"]] == [[0, 1, [0]]]
    assert block["items"] == [{"port": "in"}, {"kernel": 1}, {"kernel": 2}, {"port": "out"}]
    # What is read from outside comes from the port: the residual value that kernel 2 adds.
    assert [edge[:2] for edge in block["edges"]] == [[0, 1], [0, 2], [1, 2], [2, 3]]
    assert block["rows"] == [[0], [1], [2], [3]]


def test_a_line_names_a_value_that_is_computed_in_no_kernel_on_its_way() -> None:
    plain = explanation("abc", [(), (0,), (0, 1)])
    between = ExplainedBinding("view", "relax.reshape", "float32 (4)", True)
    last = replace(plain.kernels[2], inputs=(1, 3))  # it reads kernel 0 through the view, binding 3
    found = picture_of(
        replace(
            plain, bindings=(*plain.bindings, between), kernels=(*plain.kernels[:2], last), left_behind=(3,)
        )
    )
    edges = found["frames"][0]["edges"]
    assert [(edge[:2], edge[3]) for edge in edges] == [([0, 1], [0]), ([0, 2], [3]), ([1, 2], [1])]


def test_copies_that_do_not_read_from_each_other_are_not_a_chain() -> None:
    (block,) = picture_of(explanation("aaaa", [(), (), (), ()]))["frames"][0]["items"]
    assert not block["chained"]


def test_equal_plans_have_equal_pictures() -> None:
    random.seed(2)
    reads = [tuple(sorted({random.randrange(i) for _ in range(2)})) if i else () for i in range(80)]
    kinds = "".join(random.choice("abc") for _ in range(80))
    assert picture_of(explanation(kinds, reads)) == picture_of(explanation(kinds, reads))


def test_a_plan_without_kernels_has_an_empty_picture() -> None:
    (frame,) = picture_of(explanation("", []))["frames"]
    assert frame == {"width": 0, "items": [], "x": [], "rows": [], "edges": []}


_SEEN = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "deuteranopia": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "protanopia": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "tritanopia": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}
"""How people see linear RGB (Machado, Oliveira and Fernandes, 2009, severity 1)."""


def linear(color: str) -> list[float]:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def lab(color: str, seen: tuple) -> tuple[float, float, float]:
    r, g, b = (max(0.0, sum(w * part for w, part in zip(row, linear(color), strict=True))) for row in seen)
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.0888,
    )
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("seen", _SEEN)
@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_the_colours_of_backends_differ_for_the_colour_blind(theme: int, seen: str) -> None:
    style = (resources.files("unity_collage.report") / "page" / "page.css").read_text()
    colors = [re.findall(rf"--c{i}: (#[0-9a-f]{{6}})", style)[theme] for i in range(6)]
    for one, other in itertools.combinations(colors, 2):
        apart = sum((a - b) ** 2 for a, b in zip(lab(one, _SEEN[seen]), lab(other, _SEEN[seen]), strict=True))
        assert apart**0.5 > 12, (one, other)  # 2.3 is just noticeable
