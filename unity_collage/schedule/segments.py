"""Index-set splitting: an axis is cut where a condition on it changes, so that each piece runs without the condition.

out[i] = if_then_else(64 <= i, b[i - 64], a[i]), i in [0, 96)
    -> out[i] = a[i], i in [0, 64);  out[64 + i] = b[i], i in [0, 32)
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from tvm import sym, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorLoad

from .axes import axis
from .stage import Expr, Iter, Stage, Var, choices, nodes, static

_MAX_SEGMENTS = 40
_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def of(stage: Stage) -> tuple[int, tuple[tuple[int, int], ...]] | None:
    """The position of the axis to cut and its pieces [low, high), or None if no axis is to be cut.

    That is the innermost axis, along which a condition would differ from lane to lane, or an axis along which tensors
    are concatenated.
    """
    conditions = _conditions(stage)
    for position in reversed(range(len(stage.iters))):
        it = stage.iters[position]
        if it.size is None:
            continue
        innermost = position == len(stage.iters) - 1
        chosen = [condition for condition, joins in conditions if joins or innermost]
        flips = sorted({t for condition in chosen for t in _flips(condition, it)})
        if flips and len(flips) < _MAX_SEGMENTS:
            edges = [0, *flips, it.size]
            return position, tuple(itertools.pairwise(edges))
    return None


def cut(stage: Stage, position: int, low: int, high: int) -> Stage:
    """The part of ``stage`` where its iterator at ``position`` is in [low, high)."""
    old = stage.iters[position]
    new = axis(old.var, high - low)
    iters = (*stage.iters[:position], new, *stage.iters[position + 1 :])
    part = stage.substituted({old.var: new.var + low}, iters)
    store = part.store
    if store is None:
        return part
    analyzer = sym.Analyzer()
    for it in iters:
        analyzer.bind(it.var, Range.from_min_extent(tirx.const(0, it.var.expr_ty().dtype), it.extent))
    indices = [analyzer.simplify(index) for index in store.indices]
    body = tirx.BufferStore(store.buffer, analyzer.simplify(store.value), indices)
    return replace(part, body=body)


def guards(stage: Stage, var: Var) -> bool:
    """Whether a condition of the body depends on ``var``."""
    return any(var in nodes(condition, tirx.Var) for condition, _ in _conditions(stage))


def _conditions(stage: Stage) -> list[tuple[Expr, bool]]:
    """The condition of each choice, with whether both sides read a tensor."""
    found: list[tuple[Expr, bool]] = []
    for choice in choices(stage.body):
        condition, then, otherwise = choice.args
        found.append((condition, bool(nodes(then, TensorLoad)) and bool(nodes(otherwise, TensorLoad))))
    return found


def _flips(condition: Expr, it: Iter) -> list[int]:
    """The values of ``it`` inside its range at which a comparison in the condition changes its result."""
    flips: list[int] = []
    for comparison in nodes(condition, _COMPARISONS):
        linear = sym.detect_linear_equation(comparison.a - comparison.b, [it.var])
        slope, base = (static(term) for term in linear) if linear else (None, None)
        if slope in (1, -1) and base is not None and it.size is not None:
            zero = -base if slope == 1 else base
            at_zero = isinstance(comparison, (tirx.LT, tirx.GE)) == (slope == 1)
            flips.append(zero if at_zero else zero + 1)
    return [flip for flip in flips if 0 < flip < (it.size or 0)]
