"""The cheapest plan over several samples is that of the weighted sum of the problems there."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_problems import cost_of, problems

from unity_collage.plan.costs import EXPECTED, UNKNOWN, Cost
from unity_collage.plan.posed import PosedSample, weighted_sum
from unity_collage.plan.weighed import weighed_cost
from unity_collage.plan.worth import Offer, worth_beside_shared
from unity_collage.search import NoCover, Problem
from unity_collage.search.auto import certified, solve
from unity_collage.search.certificate import why_not

NAMES = ("small", "large")


@st.composite
def sampled(draw: st.DrawFn) -> list[PosedSample]:
    """A little problem with other costs at each of two or three samples, and their weights."""
    first = draw(problems(most=6))
    count = draw(st.integers(2, 3))
    raw = draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    samples: list[PosedSample] = []
    for number in range(count):
        seconds = draw(st.lists(st.integers(0, 6), min_size=len(first.options), max_size=len(first.options)))
        options = tuple(replace(o, seconds=float(s)) for o, s in zip(first.options, seconds, strict=True))
        transitions = dict.fromkeys(first.transitions, number * 0.5 + 0.25)
        problem = replace(first, options=options, transitions=transitions)
        samples.append(PosedSample({"n": number + 1}, raw[number] / sum(raw), problem))
    return samples


def expected(samples: list[PosedSample], ids: tuple[int, ...]) -> float | None:
    """What the plan of these options costs over all samples, each in its own problem."""
    each: list[float] = []
    for sample in samples:
        found = cost_of(sample.problem, [o for o in sample.problem.options if o.id in ids])
        if found is None:
            return None
        each.append(sample.weight * found)
    return math.fsum(each)


@given(sampled())
def test_the_weighed_plan_is_the_cheapest_of_all_plans_over_the_samples(samples: list[PosedSample]) -> None:
    ids = [option.id for option in samples[0].problem.options]
    costs = [
        cost
        for size in range(len(ids) + 1)
        for chosen in combinations(ids, size)
        if (cost := expected(samples, chosen)) is not None
    ]
    whole: Problem = weighted_sum(samples)
    try:
        solution = solve(whole)
    except NoCover:
        assert not costs
        return
    assert solution.seconds == pytest.approx(min(costs), abs=1e-9)
    assert expected(samples, tuple(o.id for o in solution.chosen)) == pytest.approx(
        solution.seconds, abs=1e-9
    )
    assert why_not(whole, certified(whole, solution)) is None


@pytest.mark.parametrize(
    ("costs", "seconds", "bound", "reason"),
    [
        ((Cost(2.0), Cost(4.0)), 3.5, None, ""),
        ((Cost(2.0), Cost(None, reason="no kernel")), None, None, "at large: no kernel"),
        ((Cost(2.0), Cost(None, origin=UNKNOWN, bound=4.0, reason="late")), None, 3.5, "late"),
        ((Cost(None, bound=1.0, reason="not needed"), Cost(4.0)), None, 3.25, "not needed"),
        ((Cost(2.0), Cost(4.0, origin=EXPECTED, bound=1.0)), 3.5, 1.25, ""),
        ((Cost(None, bound=1.0, reason="late"), Cost(4.0, origin=EXPECTED, bound=3.0)), None, 2.5, "late"),
    ],
)
def test_costs_of_several_samples(
    costs: tuple[Cost, ...], seconds: float | None, bound: float | None, reason: str
) -> None:
    found = weighed_cost(costs, (0.25, 0.75), NAMES)
    assert (found.seconds, found.bound, found.reason) == (seconds, bound, reason)


OFFERS = st.lists(
    st.builds(Offer, st.integers(1, 9), own=st.integers(1, 50), shared=st.integers(1, 60)),
    min_size=1,
    max_size=6,
)


@given(OFFERS, st.sampled_from([0.0, 0.02, 0.2]))
def test_one_more_plan_than_those_that_stay_would_save_too_little(offers: list[Offer], least: float) -> None:
    stays = worth_beside_shared(offers, least, math.inf)
    cost = [offer.own if there else offer.shared for offer, there in zip(offers, stays, strict=True)]
    total = math.fsum(offer.weight * each for offer, each in zip(offers, cost, strict=True))
    for offer, there in zip(offers, stays, strict=True):
        saved = offer.weight * (offer.shared - offer.own)
        if there:
            assert saved > 0 and saved >= least * (total + saved) * 0.999
        else:
            assert saved <= 0 or saved < least * total


def test_savings_are_parts_of_the_total_with_what_the_regret_keeps() -> None:
    """2 units are less than 1.98 % of 102 units, but not of the 100.5 units that are left."""
    large = Offer(1.0, own=98.0, shared=100.0, best=98.0)
    small = Offer(1.0, own=0.5, shared=2.0, best=0.5)
    assert worth_beside_shared([large, small], 0.0198, most_regret=math.inf) == [False, False]
    assert worth_beside_shared([large, small], 0.0198, most_regret=0.05) == [True, True]
