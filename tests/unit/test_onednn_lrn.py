"""Local response normalization, in the forms that importer and layout normal form leave."""

from __future__ import annotations

from typing import Any

import pytest
from relax_calls import bindings, function, nn, op
from tvm import relax
from tvm.relax.dpl import WildcardPattern

from unity_collage.backends import onednn as backend

onednn: Any = backend
"""Answers are steps or reasons; each test knows which."""


def channels_first(x, *, rows=1, include=True):
    squares = op.expand_dims(op.multiply(x, x), [1])
    padding = (2, rows // 2, 0, 2, rows // 2, 0)
    pooled = nn.avg_pool3d(squares, (5, rows, 1), (1, 1, 1), padding, count_include_pad=include)
    scaled = op.multiply(op.squeeze(pooled, [1]), relax.const(1e-4))
    return op.divide(x, op.power(op.add(scaled, relax.const(1.0)), relax.const(0.75)))


def channels_last(x):
    squares = op.reshape(op.multiply(x, x), (50, 1, 16))
    pooled = op.reshape(nn.avg_pool1d(squares, 5, 1, 2, count_include_pad=True), (2, 5, 5, 16))
    shifted = op.add(op.multiply(pooled, relax.const(1e-4)), relax.const(1.0))
    return op.divide(x, op.power(shifted, relax.const(0.75)))


def calls(body, shape):
    return [binding.value for binding in bindings(body, shape)]


@pytest.mark.parametrize(
    ("body", "shape", "strides"),
    [
        (channels_first, (2, 16, 5, 5), (400, 25, 5, 1)),
        (channels_last, (2, 5, 5, 16), (400, 1, 80, 16)),
    ],
)
def test_both_layouts_are_one_primitive(body, shape, strides):
    made = onednn.lrn(calls(body, shape))
    assert (made.primitive, made.arg("src").strides, made.result.strides) == ("lrn", strides, strides)
    assert made.arg("src").dims == (2, 16, 5, 5)
    numbers = {name: made.attr(name) for name in ("local_size", "alpha", "beta", "k")}
    assert numbers == pytest.approx({"local_size": 5, "alpha": 1e-4, "beta": 0.75, "k": 1.0})


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"rows": 3}, "odd number of channels"), ({"include": False}, "skips padding")],
)
def test_other_averages_are_refused(options, reason):
    assert reason in onednn.why_not_lrn(calls(lambda x: channels_first(x, **options), (2, 16, 5, 5)))


def test_other_operators_are_refused():
    assert "not the operators" in onednn.why_not_lrn(calls(lambda x: nn.relu(op.exp(x)), (2, 3)))


@pytest.mark.parametrize(("make", "shape"), [(channels_first, (2, 16, 5, 5)), (channels_last, (2, 5, 5, 16))])
def test_the_pattern_finds_all_of_it(make, shape):
    func = function(make, shape)
    body: Any = func.body
    last = body.blocks[0].bindings[-1].value
    matched = onednn.lrn_pattern().extract_matched_expr(last, relax.analysis.get_var2val(func))
    assert matched is not None
    found = [binding.value for binding in body.blocks[0].bindings]
    inside = [expr for pattern, expr in matched.items() if not isinstance(pattern, WildcardPattern)]
    assert all(expr in inside for expr in found)
    assert func.params[0] not in inside
