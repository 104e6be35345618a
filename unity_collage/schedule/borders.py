"""Tiles that touch no border: the reduction without the conditions of its padding, and when it may be used.

    acc += if_then_else(1 <= x + r and x + r <= w, a[x + r - 1], 0) * b
        ->  if 1 <= x and x + height - 1 <= w:  acc += a[x + r - 1] * b    else: as before

With sizes that are known LLVM proves most conditions. With others it checks both ends in each step of the reduction:
a convolution of 3 channels took twice as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Call

from .stage import Expr, Stage, Var, choices, nodes, op_name, static, substitute

Spans = Mapping[Var, tuple[Expr, int]]
"""The first value and the number of values of each iterator in a tile."""


def inside(stage: Stage, spans: Spans) -> tuple[Expr, Stage] | None:
    """The condition under which every choice in ``stage`` takes its first value all over a tile, and the stage with
    these values.

    None if there is no choice, or one with a condition that is no conjunction of linear comparisons.
    """
    analyzer = sym.Analyzer()
    least = [
        _least(part, spans, analyzer) for choice in choices(stage.body) for part in _parts(choice.args[0])
    ]
    if not least or any(each is None for each in least):
        return None
    condition: Expr = tirx.const(True, "bool")
    for slack in least:
        assert slack is not None
        condition = tirx.And(condition, analyzer.simplify(slack) >= 0)

    def first(call: Call) -> Expr:
        return call.args[1] if op_name(call) == "if_then_else" else call

    body = tvm_ffi.structural_map(stage.body, (Call, first))
    return analyzer.simplify(condition), replace(stage, body=body)


def _parts(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, tirx.And):
        yield from _parts(condition.a)
        yield from _parts(condition.b)
    else:
        yield condition


def _least(part: Expr, spans: Spans, analyzer: sym.Analyzer) -> Expr | None:
    """The least value over the tile of a number that is negative where the comparison ``part`` does not hold."""
    if isinstance(part, (tirx.LE, tirx.LT)):
        slack = part.b - part.a
    elif isinstance(part, (tirx.GE, tirx.GT)):
        slack = part.a - part.b
    else:
        return None
    if isinstance(part, (tirx.LT, tirx.GT)):
        slack = slack - 1
    for var, (begin, extent) in spans.items():
        if not any(used.same_as(var) for used in nodes(slack, tirx.Var)):
            continue
        linear = sym.detect_linear_equation(analyzer.simplify(slack), [var])
        step = static(linear[0]) if linear else None
        if step is None:
            return None
        slack = substitute(slack, {var: begin if step >= 0 else begin + (extent - 1)})
    return slack
