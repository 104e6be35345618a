"""The fastest of several whole programs for one model: that of our plan, and those that a user could choose instead."""

from __future__ import annotations

import math
from dataclasses import replace

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from .annotations import EXPLANATION, PLAN
from .backends.registry import select
from .cost.method import MEDIAN
from .cost.model import Capability, CostModel
from .errors import CollageError
from .feedback.builder import ProgramBuilder
from .feedback.claims import with_claim
from .feedback.percentiles import percentile_of, too_few_runs
from .feedback.refine import refined
from .feedback.room import OF_OURS, why_no_room
from .feedback.runtimes_alone import fastest_runtime
from .feedback.settings import BY_DEFAULT, Refined, Refinement, Tell
from .feedback.whole_models import WholeModels, disagreements, planned
from .graph.calls import external_symbols
from .graph.variants import range_of
from .lowering.build import build
from .lowering.live_memory import held_by
from .measure.choices import has_no_choice
from .measure.runnable import why_not_measured
from .passes.correct_costs import CorrectCosts
from .passes.schedule_branches import ScheduleBranches
from .pipeline import FLOAT32, Pipeline
from .profile.inputs import has_bfloat16, why_not_comparable
from .runtime import custom_ops
from .search.memory_bounded import MemoryGoal

_NARROW_TOLERANCE = 5e-2
"""How far outputs of whole programs may differ, as a part of their range, if one of them computes with 8 bits of
precision.
"""


def fastest(
    pipeline: Pipeline,
    imported: IRModule,
    target: Target,
    refine: Refinement | None,
    tell: Tell,
    whole_models: WholeModels,
) -> Refined:
    """The fastest of several programs, those of ``whole_models`` among them; our own where they cannot be compared,
    with the reason. Without backends it is the fastest of ``whole_models``, or the first without measuring."""
    costs = pipeline.model
    if pipeline.backends is not None and not pipeline.backends:
        reason = pipeline.unmeasured or "nothing may be measured"
        if pipeline.measure:
            reason = _why_not_compared(costs, imported, target)
        settings = _tolerant(refine or BY_DEFAULT, pipeline, imported)
        return fastest_runtime(whole_models, imported, target, settings, tell, reason)
    if not pipeline.measure:
        with target:
            mod = tvm.transform.Sequential(pipeline.passes(), name="collage")(imported)
        by_rule = pipeline.unmeasured and (f"kernels were chosen by rule: {pipeline.unmeasured}",)
        return Refined(mod, build(mod, target), remarks=by_rule or ())
    settings = refine or (BY_DEFAULT if costs.is_limited() else replace(BY_DEFAULT, build_seconds=math.inf))
    percentile = percentile_of(costs)
    if refine is not None and percentile != MEDIAN:
        raise CollageError("a percentile and refine: kernels of running programs are timed by medians")
    settings = replace(settings, percentile=percentile)
    reason = _why_not_compared(costs, imported, target) or _why_only_here(imported)
    if pipeline.devices:
        reason = reason or "the others would not be on the devices that were chosen"
    if refine is not None and reason:
        raise CollageError(f"candidate programs cannot be compared: {reason}")
    settings = _tolerant(settings, pipeline, imported)
    with target:
        priority = tuple(backend.name for backend in select(pipeline.backends, target))
        if reason is None:
            pipeline = replace(pipeline, programs=priority, hopeless=settings.hopeless)
        costed = tvm.transform.Sequential(pipeline.until_costs(), name="collage")(imported)
        search = tvm.transform.Sequential([pipeline.search(), *pipeline.after_search()], name="collage")
        builder = ProgramBuilder(costed, imported, target, search, CorrectCosts(costs), whole_models)
        if pipeline.memory is not None:
            return _within(pipeline.memory, Refined(*builder.searched(costed)))
        if has_no_choice(costed) and not whole_models:
            return Refined(*builder.searched(costed))
        if reason is None and settings.is_optional:
            reason = why_no_room(imported, OF_OURS)
        if reason is not None:
            best = Refined(*builder.searched(costed), remarks=(f"programs were not compared: {reason}",))
        else:
            best = _completed(refined(builder, costs, priority, settings, tell), pipeline, builder)
            if best.report is not None:
                told = disagreements(best.report, whole_models)
                best = replace(best, remarks=(*best.remarks, *told))
            if best.report is not None and (entrant := whole_models.get(best.report.winner)) is not None:
                mod = planned(best.mod, entrant, best.report)
                best = replace(best, mod=_explained(mod, pipeline, builder) if pipeline.explain else mod)
        return replace(
            best, percentile=percentile, remarks=(*best.remarks, *too_few_runs(costed, best.mod, percentile))
        )


def _tolerant(settings: Refinement, pipeline: Pipeline, imported: IRModule) -> Refinement:
    """``settings`` with a larger tolerance where programs compute, or their results are, in bfloat16."""
    if pipeline.precision == FLOAT32 and not has_bfloat16(imported):
        return settings
    return replace(settings, tolerance=max(settings.tolerance, _NARROW_TOLERANCE))


def _why_not_compared(costs: CostModel, imported: IRModule, target: Target) -> str | None:
    """Why programs are not run here to compare them, or None."""
    return costs.why_not(Capability.RUN_PROGRAMS) or why_not_comparable(imported) or why_not_measured(target)


def _why_only_here(imported: IRModule) -> str | None:
    """Why a program of ``imported`` runs in this process and in no worker, or None."""
    functions = custom_ops.operators_among(external_symbols(imported))
    return f"the Python functions for {', '.join(functions)} are in this process only" if functions else None


def _within(goal: MemoryGoal, built: Refined) -> Refined:
    """The program of a plan for a goal of memory; raises CollageError where it takes more than its limit."""
    memory = held_by(built.executable).get("main")
    if goal.limit is not None and memory is not None and memory.peak > goal.limit:
        raise CollageError(
            f"the program takes {memory.peak} bytes at {memory.at}, above the memory limit of {goal.limit}: by the "
            "sizes of its values the plan was within it; raise the limit, or lower it so that another plan is found"
        )
    remarks = ["programs were not compared: the plan is for a goal of memory"]
    if memory is not None and memory.unknown:
        remarks.append(
            "values whose sizes are known only when it runs are not in its memory, and so not in the goal: "
            f"{memory.unknown}"
        )
    return replace(built, remarks=(*built.remarks, *remarks))


def _completed(best: Refined, pipeline: Pipeline, builder: ProgramBuilder) -> Refined:
    """A winner that is not the program of our search, with what that one has: branches side by side, an explanation."""
    if EXPLANATION.by_function(best.mod) or not PLAN.by_function(best.mod):
        return best
    mod, executable = best.mod, best.executable
    origins = {plan.algorithm for plan in PLAN.by_function(mod).values()}
    if best.report is not None and best.report.winner in origins:  # its plan was given, not searched for
        mod = ScheduleBranches(pipeline.model)(mod)
        executable = build(mod, builder.target) if _has_branches(mod) else executable
        if any(map(range_of, builder.costed.functions.values())):
            mod = with_claim(mod, builder.ours())
    if pipeline.explain:
        mod = _explained(mod, pipeline, builder)
    return replace(best, mod=mod, executable=executable)


def _explained(mod: IRModule, pipeline: Pipeline, builder: ProgramBuilder) -> IRModule:
    """``mod`` with the explanation of our own search, as far as it has those functions."""
    functions = dict(mod.functions_items())
    named = {gvar.name_hint: gvar for gvar in functions}
    for name, explanation in EXPLANATION.by_function(pipeline.search()(builder.costed)).items():
        func = functions.get(named[name]) if name in named else None
        if isinstance(func, relax.Function):
            functions[named[name]] = EXPLANATION.write(func, explanation)
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _has_branches(mod: IRModule) -> bool:
    """Whether ScheduleBranches has put branches side by side."""
    found = PLAN.by_function(mod).get("main")
    return found is not None and found.branches is not None
