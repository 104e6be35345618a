"""The claim about a range of sizes where another plan than that of the search is the fastest.

Each of its variants is compared with the static plan that the search found for the same size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import fsum
from typing import cast

from tvm import relax
from tvm.ir import IRModule

from ..annotations import PLAN
from ..plan.check_problems import why_not_in
from ..plan.instance import unpacked
from ..plan.plan import Plan
from ..plan.ranges import RangeClaim, SizeClaim, regret_text


def with_claim(given: IRModule, ours: IRModule) -> IRModule:
    """``given`` with a range in the plan of its ``main``, from the static plans of ``ours``; as it is without any.

    Both are final modules of one module with costs. ``given`` has all variants.
    """
    plans, searched = PLAN.by_function(given), PLAN.by_function(ours)
    theirs = searched["main"].range if "main" in searched else None
    sizes = [] if theirs is None else list(_claims(theirs, plans, searched))
    if theirs is None or not sizes:
        return given
    total = fsum(each.weight for each in sizes)
    claimed = tuple(replace(each, weight=each.weight / total) for each in sizes)
    expected = fsum(each.weight * each.seconds for each in claimed)
    claim = RangeClaim(claimed, expected, max(each.regret for each in claimed), theirs.least_saving)
    plan = replace(plans["main"], range=claim, remarks=(*plans["main"].remarks, regret_text(claim)))
    main = cast(relax.Function, given["main"])
    functions = {**dict(given.functions_items()), given.get_global_var("main"): PLAN.write(main, plan)}
    return IRModule(functions, attrs=given.attrs, global_infos=given.global_infos)


def _claims(
    theirs: RangeClaim, plans: Mapping[str, Plan], searched: Mapping[str, Plan]
) -> Iterator[SizeClaim]:
    """What the variants cost at the samples of a claim; one with kernels by rule has no cost."""
    for each in theirs.sizes:
        plan, own = plans.get(each.variant), searched.get(each.variant)
        if plan is None or not plan.has_costs:
            continue
        certificate = own.certificate if own is not None else each.certificate
        problem = own.problem if own is not None else each.problem
        if certificate is None or not problem or why_not_in(unpacked(problem), plan) is not None:
            continue
        yield replace(
            each,
            runs=each.variant,
            seconds=plan.seconds,
            regret=plan.seconds - each.best_seconds,
            certificate=certificate,
            problem=problem,
        )
