"""Attention as a candidate: which operators it takes, what it declines, and programs with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import arrays, compiled
from lowered_function import bound, constant, function, inputs_of, nn, op
from tvm import relax
from tvm.ir import IRModule

from unity_collage import reference, runtime
from unity_collage.annotations import CANDIDATES, DECLINED
from unity_collage.backends.kernels import lower
from unity_collage.backends.native.lowering import NotLowerable
from unity_collage.passes.annotate_candidates import AnnotateCandidates
from unity_collage.target import host_target
from unity_collage.testing.fixed_cost import FixedCost

if reason := runtime.why_unavailable("kernels"):
    pytest.skip(reason, allow_module_level=True)

LABEL = "kernels.attention"
BATCH, HEADS, ROWS, SIZE = 2, 3, 21, 5
PROJECTED: Any = (BATCH, ROWS, HEADS * SIZE)
SPLIT: Any = (BATCH, HEADS, ROWS, SIZE)
CHEAP = FixedCost({f"kernels:{LABEL}": 1e-6, "kernels": 1e-3, "tvm": 1e-2})


def by_head(x: relax.Expr, axes: tuple[int, ...] = (0, 2, 1, 3)) -> relax.Expr:
    return op.permute_dims(op.reshape(x, (BATCH, ROWS, HEADS, SIZE)), list(axes))


def attend(
    q: relax.Expr, k: relax.Expr, v: relax.Expr, between: Callable[[relax.Expr], relax.Expr] = lambda s: s
) -> relax.Expr:
    return op.matmul(nn.softmax(between(op.matmul(q, k)), -1), v)


def projected(q: relax.Expr, k: relax.Expr, v: relax.Expr, between: Any = lambda s: s) -> relax.Expr:
    made = attend(by_head(q), by_head(k, (0, 2, 3, 1)), by_head(v), between)
    return op.reshape(op.permute_dims(made, [0, 2, 1, 3]), PROJECTED)


def annotated(func: relax.Function) -> relax.Function:
    with host_target():
        return AnnotateCandidates(("kernels",))(IRModule({"main": func}))["main"]


def largest(func: relax.Function) -> int:
    """How many operators the largest candidate covers; 0 if there is none."""
    found = [c.composites for c in CANDIDATES.read(annotated(func)) if c.backend == "kernels"]
    return max((len(covered) for ((label, covered),) in found if label == LABEL), default=0)


def assert_runs(func: relax.Function) -> None:
    program = compiled(IRModule({"main": func}), ("kernels",), CHEAP)
    assert LABEL in [kernel.label for kernel in (program.plan or {})["main"].kernels]
    inputs = inputs_of(func)
    (expected,) = reference.run(func, inputs)
    np.testing.assert_allclose(arrays(program(*inputs)), expected, rtol=0, atol=3e-6 * np.abs(expected).max())


MASK: Any = (BATCH, 1, 1, ROWS)


@pytest.mark.parametrize(
    ("body", "shapes", "operators"),
    [
        (projected, (PROJECTED,) * 3, 11),
        (
            lambda q, k, v, m: projected(q, k, v, lambda s: op.add(op.multiply(s, relax.const(0.2)), m)),
            (PROJECTED, PROJECTED, PROJECTED, MASK),
            13,
        ),
        (
            lambda q, k, v, m: projected(q, k, v, lambda s: op.add(m, s)),
            (PROJECTED, PROJECTED, PROJECTED, (ROWS, ROWS)),
            12,
        ),
        (
            lambda q, k, v: attend(q, op.permute_dims(k, [0, 1, 3, 2]), v),
            (SPLIT, (BATCH, HEADS, 9, SIZE), (BATCH, HEADS, 9, 4)),
            4,
        ),
        (lambda q, k, v: attend(q, k, v), ((4, 6), (6, 5), (5, 7)), 3),
        (
            lambda q, k, v: attend(q, k, v),
            (SPLIT, (BATCH, 1, SIZE, 8), (8, 6)),
            3,
        ),
    ],
    ids=["projections", "scale and mask", "mask first", "heads apart", "one matrix", "keys shared by heads"],
)
def test_an_attention_is_one_kernel(body: Callable[..., Any], shapes: Any, operators: int):
    func = function(body, *shapes)
    assert largest(func) == operators
    assert_runs(func)


def test_a_layout_change_that_others_read_stays_outside():
    def body(q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        turned = bound(by_head(q))
        return op.add(attend(turned, by_head(k, (0, 2, 3, 1)), by_head(v)), turned)

    func = function(body, PROJECTED, PROJECTED, PROJECTED)
    assert largest(func) == 7
    assert_runs(func)


@pytest.mark.parametrize(
    ("body", "shapes", "reason"),
    [
        (lambda q, k, v: attend(q, k, v, nn.relu), None, "attention has no nn.relu there"),
        (
            lambda q, k, v: attend(q, k, v, lambda s: op.multiply(s, constant(8))),
            None,
            "multiplied by something else than one number",
        ),
        (
            lambda q, k, v: attend(q, k, v, lambda s: op.multiply(op.add(s, constant(4, 8)), relax.const(2.0))),
            None,
            "the factor comes behind the mask",
        ),
        (
            lambda q, k, v: attend(
                q, k, v, lambda s: op.multiply(op.multiply(s, relax.const(3e30)), relax.const(3e30))
            ),
            None,
            "the factor of the scores is 8.99",
        ),
        (
            lambda q, k, v: attend(q, k, v, lambda s: op.add(op.add(s, constant(8)), constant(4, 8))),
            None,
            "there is one sum before the softmax",
        ),
        (
            lambda q, k, v: attend(q, k, v, lambda s: op.add(s, constant(4, 1))),
            None,
            "the numbers of a row of mask are not neighbours",
        ),
        (
            lambda q, k, v: attend(q, k, v, lambda s: op.where(constant_mask(4, 8), s, relax.const(-1e9))),
            None,
            "attention has no where there",
        ),
        (
            lambda q, k, v: op.matmul(nn.softmax(op.matmul(q, k), 0), v),
            None,
            "the softmax is not over the keys",
        ),
        (
            lambda q, k, v: op.matmul(op.permute_dims(v), op.permute_dims(nn.softmax(op.matmul(q, k), -1))),
            None,
            "attention has no permute_dims there",
        ),
        (lambda q, k, v: attend(q, constant(6, 8), v), None, "a factor is constant"),
        (
            lambda q, k, v: attend(q, k, v),
            ((4, 6), (6, 8), (3, 8, 5)),
            "the values have more batches than the scores",
        ),
    ],
)  # fmt: skip
def test_what_is_no_attention_of_ours(body: Callable[..., Any], shapes: Any, reason: str):
    func = function(body, *(shapes or ((4, 6), (6, 8), (8, 5))))
    assert largest(func) == 0
    assert any(reason in refusal.reason for refusal in DECLINED.read(annotated(func)))


def constant_mask(*shape: int) -> relax.Expr:
    return relax.const(np.tri(*shape, dtype="bool"), "bool")


def test_scores_that_others_read_are_no_inside_of_a_kernel():
    def body(q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        shares = bound(nn.softmax(op.matmul(q, k), -1))
        return relax.Tuple([bound(op.matmul(shares, v)), shares])

    assert largest(function(body, (4, 6), (6, 8), (8, 5))) == 0


def test_half_an_attention_is_no_program():
    func = function(lambda q, k: nn.softmax(op.matmul(q, k), -1), (4, 6), (6, 8))
    func = func.with_attr("Composite", LABEL)
    with pytest.raises(NotLowerable, match="meets no values"):
        lower([func], ["main"])
