"""Costs and problems of functions with free sizes: at each sample, and their weighted sums.

The plan of such a function is the same for all sizes, so its expected cost is ``sum(weight * cost at the sample)``.
That is the cost of a plan in the problem in which each kernel and each transition costs its own weighted sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import fsum

from tvm import relax

from ..graph import DataflowGraph
from ..graph.shapes import nbytes_of
from ..graph.variants import at_sizes
from ..search import Option, Problem
from .costs import EXPECTED, PACKED, UNKNOWN, Cost, Costs, Point, SampleCosts, at_size
from .ranges import named


def weighed_cost(costs: Sequence[Cost], weights: Sequence[float], names: Sequence[str]) -> Cost:
    """The weighted sum of the costs of a kernel at several samples, with these ``names``.

    A kernel that is refused at one of them has no cost. A kernel with unknown costs has a lower bound, if it has one
    at each sample without a cost. So has one with expected costs.
    """
    runs = min((cost.runs for cost in costs if cost.runs), default=0)
    for cost, name in zip(costs, names, strict=True):
        if cost.seconds is None and not cost.is_open:
            return Cost(None, reason=f"at {name}: {cost.reason}", runs=runs)
    doubtful = any(cost.is_doubtful for cost in costs)
    for cost in costs:
        if cost.is_open:
            least = _sum([least_seconds(each) for each in costs], weights)
            origin = UNKNOWN if any(each.origin == UNKNOWN for each in costs) else cost.origin
            return Cost(None, reason=cost.reason, origin=origin, bound=least, runs=runs)
    origins = {cost.origin for cost in costs}
    has_interval = any(cost.interval is not None for cost in costs)
    intervals = [cost.interval or (cost.seconds or 0.0,) * 2 for cost in costs]
    return Cost(
        _sum([cost.seconds or 0.0 for cost in costs], weights),
        _sum([low for low, _ in intervals], weights) if has_interval else 0.0,
        _sum([high for _, high in intervals], weights) if has_interval else 0.0,
        runs,
        next((origin for origin in (EXPECTED, PACKED) if origin in origins), costs[0].origin),
        is_doubtful=doubtful,
        bound=_sum([least_seconds(each) for each in costs], weights) if EXPECTED in origins else None,
    )


def least_seconds(cost: Cost) -> float:
    """The seconds of a cost, or the lower bound of one that is not known, or only expected."""
    if cost.seconds is None:
        return cost.bound or 0.0
    guessed = cost.bound_of_guess
    return cost.seconds if guessed is None else guessed


def weighed_costs(costs: Costs, samples: Sequence[SampleCosts]) -> Costs:
    """``costs`` with those at the ``samples``, and the weighted sum for each key."""
    weights, names = [each.weight for each in samples], [named(each.sizes) for each in samples]
    by_key = {
        key: weighed_cost([each.by_key[key] for each in samples], weights, names) for key in costs.by_key
    }
    return replace(costs, by_key=by_key, samples=tuple(samples))


def transition_seconds(graph: DataflowGraph, costs: Costs, points: Sequence[Point]) -> tuple[float, ...]:
    """The cost of each value of ``graph`` between two backends: at its size, or weighed over its sizes."""
    if not costs.samples:
        return tuple(at_size(points, nbytes_of(node.var)) for node in graph.nodes)
    weights = [sample.weight for sample in costs.samples]
    each = [seconds_at(graph.func, sample, points) for sample in costs.samples]
    return tuple(_sum(seconds, weights) for seconds in zip(*each, strict=True))


def seconds_at(func: relax.Function, sample: SampleCosts, points: Sequence[Point]) -> tuple[float, ...]:
    """The cost of each value of ``func`` between two backends at one sample."""
    return tuple(at_size(points, nbytes) for nbytes in _nbytes_at(func, tuple(sample.sizes.items())))


@lru_cache(maxsize=8)
def _nbytes_at(func: relax.Function, sizes: tuple[tuple[str, int], ...]) -> tuple[int, ...]:
    """The bytes of each value at these sizes; a search makes its problem many times."""
    return tuple(nbytes_of(node.var) for node in DataflowGraph(at_sizes(func, dict(sizes))).nodes)


def forget() -> None:
    """Forget the functions whose values were counted last: they hold the weights of their models."""
    _nbytes_at.cache_clear()


def problem_at(graph: DataflowGraph, costs: Costs, whole: Problem, sample: SampleCosts) -> Problem:
    """The problem ``whole``, which is weighed, with the costs of one sample: the same options, free nodes and order."""
    options: list[Option] = []
    for option in whole.options:
        key = costs.keys[option.id]
        cost, is_known = sample.by_key[key], costs.by_key[key].seconds is not None
        low, high = (cost.interval if option.low is not None else None) or (None, None)
        seconds = cost.seconds if is_known and cost.seconds is not None else least_seconds(cost)
        least = cost.bound_of_guess if is_known else None
        options.append(replace(option, seconds=seconds, low=low, high=high, least=least))
    points = {**costs.transitions, **costs.copies}
    transitions = {pair: seconds_at(graph.func, sample, points[">".join(pair)]) for pair in whole.transitions}
    return replace(whole, options=tuple(options), transitions=transitions)


def _sum(seconds: Sequence[float], weights: Sequence[float]) -> float:
    return fsum(weight * each for weight, each in zip(weights, seconds, strict=True))
