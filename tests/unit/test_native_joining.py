"""Concatenation inside a step: where the result and the other fields lie in the whole, without a library."""

from __future__ import annotations

import json
from typing import Any

import pytest
from relax_calls import constant, function, op

from unity_collage.backends.kernels import lower
from unity_collage.backends.native.lowering import NotLowerable
from unity_collage.backends.native.program import View
from unity_collage.backends.native.views import pixel_stride


@pytest.mark.parametrize(
    ("dims", "strides", "pixel"),
    [
        ((2, 3, 4, 5), (60, 1, 15, 3), 3),
        ((2, 3, 4, 5), (200, 1, 50, 10), 10),
        ((2, 3, 4, 5), (240, 1, 50, 10), None),
        ((1, 3, 4, 5), (240, 1, 50, 10), 10),
        ((2, 3, 4, 5), (60, 1, 20, 3), None),
        ((2, 3, 4, 5), (60, 20, 5, 1), None),
        ((2, 3, 4, 5), (40, 1, 10, 2), None),
        ((1, 3, 1, 1), (3, 1, 3, 3), 3),
        ((4, 3, 1, 1), (9, 1, 9, 9), 9),
        ((1, 1, 1, 5), (5, 1, 5, 1), 1),
    ],
)
def test_pixel_stride(dims: tuple[int, ...], strides: tuple[int, ...], pixel: int | None):
    assert pixel_stride(View("x", dims, strides, "float32")) == pixel


def program(axis: int, *others: tuple[int, ...]) -> Any:
    """A convolution of one image of 5x6 in the middle of a concat along ``axis``."""

    def body(x: Any, *fields: Any) -> Any:
        made = op.nn.conv2d(x, constant(3, 3, 8, 4), padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO")
        return op.concat((fields[0], made, *fields[1:]), axis=axis)

    func = function(body, (1, 5, 6, 8), *others).with_attr("Composite", "kernels.winograd2")
    (made,) = json.loads(lower([func], ["f"])[0])["programs"]
    return made


def test_the_result_is_a_slice_and_the_other_fields_are_sibling_copies():
    made = program(3, (1, 5, 6, 3), (1, 5, 6, 2))
    (step,) = made["steps"]
    args, pixel = step["args"], 3 + 4 + 2
    assert args["dst"]["offset"] == 3 * 4 and args["dst"]["strides"][1:] == [1, 6 * pixel, pixel]
    places = [args[name] for name in ("dst_beside0", "dst_beside1")]
    assert [(v["dims"], v["strides"], v["offset"]) for v in places] == [
        ([30, 3], [pixel, 1], 0),
        ([30, 2], [pixel, 1], 7 * 4),
    ]
    assert {v["buffer"] for v in (args["dst"], *places)} == set(made["outputs"])
    assert [args[f"beside{i}"]["buffer"] for i in (0, 1)] == made["inputs"][1:]


def test_rows_of_one_image_are_one_piece():
    (step,) = program(1, (1, 2, 6, 4))["steps"]
    assert step["args"]["dst"]["offset"] == 2 * 6 * 4 * 4
    assert step["args"]["dst_beside0"]["dims"] == [1, 2 * 6 * 4]


def test_columns_are_no_image():
    with pytest.raises(NotLowerable, match="concat"):
        program(2, (1, 5, 1, 4))
