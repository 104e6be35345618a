"""SplitSizes: several plans for sizes between the samples, where one plan for all of them would cost much more.

Reads    ``collage.costs`` of the function for all other sizes, from WeighSizes; ``collage.switch`` of ``main``.
Writes   copies of that function for smaller sizes, with ``collage.up_to``; all with ``collage.costs`` and
         ``collage.range`` of their own samples; ``main``, which calls one of them by the product of the sizes, and
         the remark of its ``collage.plan`` that says so.
Keeps    what ``main`` computes for every size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import fsum, isqrt, prod
from typing import cast

import tvm
from tvm import ir, relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS, PLAN
from ..graph import DataflowGraph
from ..graph.variants import (
    LIKE,
    UpTo,
    called_by_switch,
    is_switch,
    like_of,
    range_of,
    sizes_of,
    variants_in,
    with_range,
    with_up_to,
)
from ..plan.costs import Costs, SampleCosts
from ..plan.problem import problem_of
from ..plan.weighed import problem_at, weighed_costs
from ..plan.worth import LEAST_SAVING, MOST_REGRET
from ..search import NoCover
from ..search.auto import solve
from ..search.validity import seconds_of_only
from ..sizes.switch import Called, switch
from ..sizes.variants import who_runs, without_who_runs
from ..tvm_private import give_type

PARTS = ("main_smaller_sizes", "main_medium_sizes")
"""The names of the functions for the smallest sizes, and for those up to the largest part."""

_REGRET_OF_PARTS = 0.1
"""A third plan takes time and memory: where it saves little, two plans may cost this part more at a sample."""


def whole_of(mod: IRModule) -> str | None:
    """The function for all other sizes, of which those for smaller ones are copies; None without a switch."""
    main = next((func for gvar, func in mod.functions_items() if gvar.name_hint == "main"), None)
    return called_by_switch(main)[-1] if main is not None and is_switch(main) else None


@tvm.transform.module_pass(opt_level=0, name="collage.SplitSizes")
@dataclass(frozen=True)
class SplitSizes:
    """Split the sizes without a variant in two or three by the product of their free dimensions, if that saves enough.

    The fastest kernels for a few rows are seldom those for many. The samples are in the order of their products. Of
    all places between two of them the pass takes the one with the least expected cost, by the costs that are known:
    nothing is measured. It splits there if that saves ``least_saving`` of the expected cost, or if a sample would lose
    more than ``most_regret`` of its cost otherwise. Then it looks for a second place in the same way.
    """

    least_saving: float = LEAST_SAVING
    most_regret: float = MOST_REGRET

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        name = whole_of(mod)
        if name is None or not {gvar.name_hint for gvar in mod.get_global_vars()}.isdisjoint(PARTS):
            return mod
        whole = mod.get_global_var(name)
        func = mod[whole]
        if not isinstance(func, relax.Function) or not range_of(func) or not COSTS.on(func):
            return mod
        places = self._places(func)
        return _split(mod, whole, places) if places else mod

    def _places(self, func: relax.Function) -> list[int]:
        """The numbers of samples, in order, before each place; empty where one plan is about as good."""
        samples = in_order(COSTS.read(func).samples)
        if len(samples) < 3:  # of two, each has a variant, or one plan is good enough for both
            return []

        @cache
        def plan(first: int, last: int) -> list[float] | None:
            return _at_samples(func, samples[first:last])

        places: list[int] = []
        current = plan(0, len(samples))
        for most_regret in (self.most_regret, max(self.most_regret, _REGRET_OF_PARTS)):
            found = None if current is None else _best_place(samples, places, current, plan)
            if current is None or found is None:
                break
            place, best = found
            saved = 1 - _expected(samples, best) / _expected(samples, current)
            loses = any(each - low > most_regret * low for each, low in zip(current, best, strict=True))
            if saved < self.least_saving and not loses:
                break
            places, current = sorted([*places, place]), best
        return places


def _best_place(
    samples: Sequence[SampleCosts],
    places: Sequence[int],
    current: Sequence[float],
    plan: Callable[[int, int], list[float] | None],
) -> tuple[int, list[float]] | None:
    """The place beside ``places`` with the least expected cost, and the cost at each sample then; None if none is less.

    ``plan`` returns the cost at each sample of one plan for a range of them.
    """
    best = None
    least = _expected(samples, current)
    for first, last in pairwise([0, *places, len(samples)]):
        for count in range(first + 1, last):
            if _volume(samples[count - 1].sizes) == _volume(samples[count].sizes):
                continue
            low, high = plan(first, count), plan(count, last)
            if low is None or high is None:
                continue
            costs = [*current[:first], *low, *high, *current[last:]]
            if _expected(samples, costs) < least:
                best, least = (count, costs), _expected(samples, costs)
    return best


def in_order(samples: Sequence[SampleCosts]) -> list[SampleCosts]:
    """The samples from the smallest product of sizes to the largest."""
    return sorted(samples, key=lambda each: (_volume(each.sizes), *each.sizes.values()))


def _volume(sizes: Mapping[str, int]) -> int:
    return prod(sizes.values())


def _expected(samples: Sequence[SampleCosts], seconds: Sequence[float]) -> float:
    return fsum(each.weight * cost for each, cost in zip(samples, seconds, strict=True))


def _at_samples(func: relax.Function, samples: Sequence[SampleCosts]) -> list[float] | None:
    """The cost at each sample of the plan that is the cheapest over these; None if there is no plan."""
    graph, costs = DataflowGraph(func), weighed_over(COSTS.read(func), samples)
    problem = problem_of(graph, CANDIDATES.read(func), costs)
    try:
        ids = [option.id for option in solve(problem).chosen]
    except NoCover:
        return None
    found: list[float] = []
    for sample in costs.samples:
        there = problem_at(graph, costs, problem, sample)
        by_id = {option.id: option for option in there.options}
        found.append(seconds_of_only(there, [by_id[identity] for identity in ids]))
    return found


def weighed_over(costs: Costs, samples: Sequence[SampleCosts]) -> Costs:
    """``costs`` over some of their samples, with weights that add up to 1."""
    total = fsum(each.weight for each in samples)
    return weighed_costs(costs, [replace(each, weight=each.weight / total) for each in samples])


def _split(mod: IRModule, whole: ir.GlobalVar, places: Sequence[int]) -> IRModule:
    """``mod`` with a function for the samples before each of the ``places``.

    It is for sizes up to the geometric mean of the two samples at the place.
    """
    func, main = cast(relax.Function, mod[whole]), cast(relax.Function, mod["main"])
    samples = in_order(COSTS.read(func).samples)
    called: list[Called] = [(sizes_of(mod[name]), mod.get_global_var(name)) for name in variants_in(mod)]
    limits: dict[str, UpTo] = {}
    functions = dict(mod.functions_items())
    for name, (first, place) in zip(PARTS, pairwise([0, *places]), strict=False):
        most = isqrt(_volume(samples[place - 1].sizes) * _volume(samples[place].sizes))
        limits[name] = UpTo(tuple(samples[0].sizes), most)
        part = ir.GlobalVar(name)
        give_type(part, func.ty)
        copy = _over(relax.utils.copy_with_new_vars(func), samples[first:place])
        functions[part] = with_up_to(copy, limits[name])
        called.append((limits[name], part))
    functions[whole] = _over(func, samples[places[-1] :])
    remark = who_runs([sizes_of(mod[name]) for name in variants_in(mod)], limits, whole.name_hint)
    functions[mod.get_global_var("main")] = _with_remark(switch(main, called, whole), remark)
    return relax.transform.Normalize()(IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos))


def _with_remark(main: relax.Function, remark: str) -> relax.Function:
    """``main`` with this remark in its plan, in place of the one that names the same function for all other sizes."""
    if not PLAN.on(main):
        return main
    plan = PLAN.read(main)
    return PLAN.write(main, replace(plan, remarks=(remark, *without_who_runs(plan.remarks))))


def _over(func: relax.Function, samples: Sequence[SampleCosts]) -> relax.Function:
    """``func`` with the costs over these samples, at the middle one of which it is measured."""
    costs = weighed_over(COSTS.read(func), samples)
    weights = [(sample.sizes, sample.weight) for sample in costs.samples]
    sizes = [each for each, _ in weights]
    like = like_of(func) if like_of(func) in sizes else sizes[len(sizes) // 2]
    return COSTS.write(with_range(func, weights).with_attr(LIKE, dict(like)), costs)
