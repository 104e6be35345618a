"""ChooseVariants: leave out the variants that cost about as much as what would run in their place.

Reads    ``collage.plan`` of each function, from SearchPartition; ``collage.range`` and ``collage.switch`` of ``main``.
Writes   ``main``, which calls fewer variants; its ``collage.plan`` says what runs at each sample, and the regret.
         Removes functions that nothing calls any more.
Keeps    what ``main`` computes for every size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum
from typing import cast

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..annotations import PLAN
from ..graph.variants import (
    UpTo,
    called_by_switch,
    is_switch,
    like_of,
    range_of,
    reached,
    sizes_of,
    up_to_of,
)
from ..lowering.by_rule import BY_RULE
from ..plan.plan import Plan
from ..plan.ranges import PlanAtSample, RangeClaim, SizeClaim, named, regret_text
from ..plan.worth import LEAST_SAVING, MOST_REGRET, Offer, worth_beside_shared
from ..sizes.samples import described
from ..sizes.switch import Called, switch
from ..sizes.variants import who_runs, without_who_runs


@tvm.transform.module_pass(opt_level=0, name="collage.ChooseVariants")
@dataclass(frozen=True)
class ChooseVariants:
    """Decide by expected cost which sample sizes have a plan of their own.

    A variant stays if it saves at least ``least_saving`` of the expected cost of all samples, against the plan for all
    sizes. The variant with the greatest saving comes first. A variant with unknown costs stays. So does one at a sample
    where the cost of the plan for all sizes is not known. A variant for which there was no time has kernels by rule. It
    does not stay if the plan for all sizes has measured kernels.
    """

    least_saving: float = LEAST_SAVING
    """The part of the expected cost that a variant has to save."""
    most_regret: float = MOST_REGRET
    """A variant also stays where the plan for all sizes would lose more than this part of the best static cost."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        there = {gvar.name_hint for gvar in mod.get_global_vars()}
        if "main" not in there or not is_switch(mod["main"]) or not range_of(mod["main"]):
            return mod
        found = _Range(mod)
        if not range_of(mod[found.shared]):
            sizes = described(like_of(mod[found.shared]))
            return _with_remark(mod, f"{found.shared} runs sizes unlike the samples, measured at {sizes}")
        if not found.known:
            return _with_remark(
                mod, "each size keeps its plan: the costs of plans for single sizes are not known"
            )
        offers = [each.offer for each in found.known]
        stays = worth_beside_shared(offers, self.least_saving, self.most_regret)
        left_out = {each.variant for each, there in zip(found.known, stays, strict=True) if not there}
        return found.decided(left_out, self.least_saving)


@dataclass(frozen=True)
class _Known:
    """A sample at which the cost of a plan of its own is known."""

    sizes: dict[str, int]
    variant: str
    shared: str
    """The function that would run there without the variant."""
    plan: Plan
    offer: Offer


@dataclass(frozen=True)
class _Range:
    """What the plans of a module with a switch say about the samples."""

    mod: IRModule

    @cached_property
    def main(self) -> relax.Function:
        return cast(relax.Function, self.mod["main"])

    @cached_property
    def others(self) -> list[str]:
        """The functions for sizes without a variant: that for smaller ones, if there is one, and that for the rest."""
        return [name for name in called_by_switch(self.main) if not sizes_of(self.mod[name])]

    @property
    def shared(self) -> str:
        """The function for all other sizes."""
        return self.others[-1]

    @cached_property
    def variants(self) -> dict[str, dict[str, int]]:
        """The variants, and the size of each dimension at which each is measured."""
        names = [name for name in called_by_switch(self.main) if sizes_of(self.mod[name])]
        return {name: {**like_of(self.mod[name]), **sizes_of(self.mod[name])} for name in names}

    @cached_property
    def known(self) -> list[_Known]:
        """The samples at which a plan of their own has a cost, with weights that add up to 1."""
        plans = PLAN.by_function(self.mod)
        found: list[_Known] = []
        for sizes, weight in range_of(self.main):
            name = next((name for name, own in self.variants.items() if own == sizes), "")
            plan, (shared, other) = plans.get(name), self.at_samples.get(_key(sizes), ("", math.inf))
            if plan is None or plan.certificate is None or not plan.has_costs:
                continue
            offer = Offer(weight, plan.seconds, other, plan.certificate.seconds)
            found.append(_Known(sizes, name, shared, plan, offer))
        total = fsum(each.offer.weight for each in found)
        return [replace(each, offer=replace(each.offer, weight=each.offer.weight / total)) for each in found]

    @cached_property
    def weighed(self) -> list[tuple[str, PlanAtSample]]:
        """What the plans of the other functions cost at the sizes over which each was weighed."""
        plans = PLAN.by_function(self.mod)
        return [(name, each) for name in self.others if name in plans for each in plans[name].at_samples]

    @cached_property
    def at_samples(self) -> dict[tuple[tuple[str, int], ...], tuple[str, float]]:
        """By sample, which of the other functions was weighed there, and what its plan costs."""
        return {_key(each.sizes): (name, each.seconds) for name, each in self.weighed}

    @cached_property
    def by_rule(self) -> list[str]:
        """The variants that have kernels by rule, if the functions for other sizes have measured ones."""
        plans = PLAN.by_function(self.mod)
        if not all(name in plans and plans[name].has_costs for name in self.others):
            return []
        return [name for name in self.variants if name in plans and plans[name].algorithm == BY_RULE]

    def decided(self, left_out: set[str], least: float) -> IRModule:
        """The module without these variants and those by rule, with the claim about each sample."""
        gone = {*left_out, *self.by_rule}
        kept = {name: sizes_of(self.mod[name]) for name in self.variants if name not in gone}
        claim = self._claim(left_out, kept, least)
        func = self._switched(kept) if gone else self.main
        before = PLAN.read(self.main)
        remarks = (*self._remarks(claim, kept, left_out, least), *without_who_runs(before.remarks))
        plan = replace(before, variants=kept, range=claim, remarks=remarks)
        return _cleaned(_with_main(self.mod, PLAN.write(func, plan)))

    def _claim(self, left_out: set[str], kept: Iterable[str], least: float) -> RangeClaim:
        sizes: list[SizeClaim] = []
        for each in self.known:
            certificate = each.plan.certificate
            assert certificate is not None
            seconds, runs = each.offer.own, each.variant
            if each.variant in left_out:
                seconds, runs = each.offer.shared, each.shared
            sizes.append(
                SizeClaim(
                    sizes=each.sizes,
                    weight=each.offer.weight,
                    runs=runs,
                    seconds=seconds,
                    best_seconds=certificate.seconds,
                    regret=seconds - certificate.seconds,
                    proved=certificate.proved,
                    variant=each.variant,
                    certificate=certificate if each.variant in left_out else None,
                    problem=each.plan.problem if each.variant in left_out else "",
                )
            )
        expected = fsum(each.weight * each.seconds for each in sizes)
        greatest = max(each.regret for each in sizes)
        own = [*(each.sizes for each in sizes), *(self.variants[name] for name in kept)]
        between = (each.sizes for _, each in self.weighed if dict(each.sizes) not in own)
        return RangeClaim(tuple(sizes), expected, greatest, least, tuple(between))

    def _switched(self, kept: Mapping[str, Mapping[str, int]]) -> relax.Function:
        """``main``, which calls the variants that stay."""
        called: list[Called] = [
            (sizes, self.mod.get_global_var(name)) for name, sizes in {**kept, **self._limits()}.items()
        ]
        return switch(self.main, called, self.mod.get_global_var(self.shared))

    def _remarks(
        self, claim: RangeClaim, kept: Mapping[str, Mapping[str, int]], left_out: set[str], least: float
    ) -> list[str]:
        found = [who_runs(kept.values(), self._limits(), self.shared)]
        shared = [each for each in self.known if each.variant in left_out]
        if shared:
            where = "; ".join(named(each.sizes) for each in shared)
            functions = " and ".join(dict.fromkeys(each.shared for each in shared))
            found.append(
                f"{where} shares {functions}: a plan of its own would save less than {least:.1%} of the expected "
                f"{1e3 * claim.expected_seconds:.4g} ms"
            )
        if self.by_rule:
            where = "; ".join(named(self.variants[name]) for name in self.by_rule)
            found.append(f"{where} has no plan of its own: there was no time to measure any of its kernels")
        found.append(regret_text(claim))
        if kept and not self.at_samples:
            found.append(
                f"each size keeps its plan: the costs of {self.shared} at the sample sizes are not known"
            )
            return found
        sure = {each.variant for each in self.known if each.offer.shared < math.inf}
        unknown = [self.variants[name] for name in kept if name not in sure]
        for reason, is_weighed in (("it was not weighed", False), ("its cost is not known", True)):
            sizes = [named(each) for each in unknown if (_key(each) in self.at_samples) == is_weighed]
            if sizes:
                found.append(f"{'; '.join(sizes)} keeps its plan: {reason}")
        return found

    def _limits(self) -> dict[str, UpTo]:
        """The functions for smaller sizes, and the sizes up to which each runs."""
        return {name: limit for name in self.others if (limit := up_to_of(self.mod[name])) is not None}


def _key(sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(sizes.items()))


def _with_main(mod: IRModule, main: relax.Function) -> IRModule:
    functions = {**dict(mod.functions_items()), mod.get_global_var("main"): main}
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _with_remark(mod: IRModule, remark: str) -> IRModule:
    main = cast(relax.Function, mod["main"])
    plan = PLAN.read(main) if PLAN.on(main) else Plan()
    return _with_main(mod, PLAN.write(main, replace(plan, remarks=(*plan.remarks, remark))))


def _cleaned(mod: IRModule) -> IRModule:
    """``mod`` without private functions that no other function calls."""
    public = [gvar for gvar, func in mod.functions_items() if "global_symbol" in (func.attrs or {})]
    roots = {gvar for gvar in public if isinstance(mod[gvar], relax.Function)}
    kept = {*public, *(inner for gvar in roots for inner in reached(cast(relax.Function, mod[gvar]), mod))}
    functions = {
        gvar: func for gvar, func in mod.functions_items() if gvar in kept or gvar.name_hint == "main"
    }
    return relax.transform.Normalize()(IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos))
