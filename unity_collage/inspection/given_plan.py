"""``compare_plan``: what a given plan costs beside ours, kernel by kernel, by costs that are measured together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from ..annotations import CANDIDATES, COSTS
from ..backends.registry import excluding, known
from ..compiler import tell_of_what_is_not_kept, why_unmeasured
from ..cost.asking import workloads
from ..cost.model import Capability, CostModel
from ..errors import CollageError, NoPlan, is_file, not_a_file
from ..frontend.models import Model
from ..frontend.sizes import Shapes
from ..graph import DataflowGraph
from ..index_set import EMPTY, IndexSet, first_inside, index_set, members
from ..making import imported_for
from ..passes.confirm_costs import levelled
from ..passes.split_sizes import PARTS, whole_of
from ..pipeline import Pipeline
from ..placing import placed
from ..plan.candidate import VIEW, Candidate
from ..plan.costs import Cost, Costs
from ..plan.given import GivenKernel, GivenPlan, read_json
from ..plan.names import binding_names
from ..plan.problem import problem_of, why_no_cover
from ..search import NoCover, Option, Problem
from ..search.alternatives import seconds_of
from ..search.auto import solve
from ..search.plans import left_behind
from ..search.ties import with_ties_broken
from .matching import chosen_candidates
from .script import kernels_in, read_script

_SCRIPTS = (".py", ".tvmscript", ".txt")


@dataclass(frozen=True, slots=True)
class CostedKernel:
    """A kernel of one of two plans."""

    backend: str
    label: str
    bindings: tuple[str, ...]
    seconds: float
    """Its cost, without launch and transitions."""
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class KernelDifference:
    """Kernels of the two plans for the same bindings, where the plans differ."""

    ours: tuple[CostedKernel, ...]
    given: tuple[CostedKernel, ...]

    @property
    def seconds(self) -> float:
        """By how much the given kernels cost more than ours, without launches and transitions."""
        return sum(kernel.seconds for kernel in self.given) - sum(kernel.seconds for kernel in self.ours)


@dataclass(frozen=True, slots=True)
class PlanCosts:
    """What the two plans of one function cost."""

    ours: float
    """Seconds of kernels, launches and transitions."""
    given: float
    ours_kernels: tuple[CostedKernel, ...]
    given_kernels: tuple[CostedKernel, ...]
    differences: tuple[KernelDifference, ...]
    """The largest first."""
    together: bool
    """Whether all kernels were timed in turns, so that costs of different kernels can be compared."""

    @property
    def loss(self) -> float:
        """By how many seconds the given plan costs more than ours; negative: it costs less."""
        return self.given - self.ours

    @property
    def is_tie(self) -> bool:
        """Whether the intervals of what differs overlap, so that the measurements cannot tell which plan is faster."""
        ours = [kernel for each in self.differences for kernel in each.ours]
        given = [kernel for each in self.differences for kernel in each.given]
        rest = self.loss - sum(each.seconds for each in self.differences)
        low = sum(kernel.low for kernel in given) - sum(kernel.high for kernel in ours) + rest
        high = sum(kernel.high for kernel in given) - sum(kernel.low for kernel in ours) + rest
        return low <= 0.0 <= high


def compare_plan(
    model: Model,
    plan: str | Path | Mapping[str, Any] | IRModule,
    pipeline: Pipeline,
    *,
    target: Target | str | None = None,
    shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
) -> dict[str, PlanCosts]:
    """What ``plan`` costs beside the plan that the ``pipeline`` finds, by function; nothing is built but kernels.

    ``plan``: a file of JSON or TVMScript, a partitioned module, or kernels by function as :mod:`.plan.given` has them.
    Raises CollageError, with the place, where it does not fit the model.
    """
    given, where = _read(plan)
    model, scope = placed(model, target or pipeline.model.target(), True)
    if reason := why_unmeasured(pipeline.model, scope):
        raise CollageError(reason)
    _, imported = imported_for(model, pipeline, scope, shapes, dims)
    with scope:
        prepared = tvm.transform.Sequential(pipeline.until_candidates())(imported)
        wanted = _by_function(given, prepared, where)  # refused before anything is measured
        for name, kernels in wanted.items():
            stated = whole_of(prepared) if name in PARTS else name
            chosen = chosen_candidates(_graph(prepared, stated or name), kernels, f"{where}, {name}")
            _check_backends(chosen, f"{where}, {name}")
        costed = tvm.transform.Sequential(pipeline.costs())(prepared)
        missing = [name for name in PARTS if name in wanted and name not in CANDIDATES.by_function(costed)]
        if missing:
            raise CollageError(
                f"{where}: fewer plans for all sizes are about as good here, so there is no {missing[0]}"
            )
        found = {
            name: _compared(costed, name, kernels, pipeline.model, f"{where}, {name}")
            for name, kernels in wanted.items()
        }
    tell_of_what_is_not_kept(pipeline.model)
    return found


def _read(plan: str | Path | Mapping[str, Any] | IRModule) -> tuple[GivenPlan | IRModule, str]:
    if isinstance(plan, IRModule):
        return plan, "the module"
    if isinstance(plan, Mapping):
        return plan, "the plan"
    path = Path(plan)
    if not is_file(path):
        raise CollageError(not_a_file(path))
    return (read_script(path) if path.suffix in _SCRIPTS else read_json(path)), str(path)


def _by_function(
    given: GivenPlan | IRModule, prepared: IRModule, where: str
) -> dict[str, tuple[GivenKernel, ...]]:
    there = [
        gvar.name_hint
        for gvar, func in prepared.functions_items()
        if isinstance(func, relax.Function) and CANDIDATES.on(func)
    ]
    if isinstance(given, IRModule):
        return {name: kernels_in(given, name, _graph(prepared, name), where) for name in there}
    made = PARTS if whole_of(prepared) is not None else ()  # SplitSizes makes them when there are costs
    unknown = [name for name in given if name not in there and name not in made]
    if unknown:
        raise CollageError(f"{where}: the model has no function {unknown[0]} with candidates")
    return dict(given)


def _graph(mod: IRModule, name: str) -> DataflowGraph:
    return DataflowGraph(mod[name], mod)


def _check_backends(chosen: Sequence[Candidate], where: str) -> None:
    """Raises CollageError for kernels of two backends that cannot be in one plan."""
    for pair in excluding(candidate.backend for candidate in chosen):
        one, _, other = pair.partition("|")
        raise CollageError(
            f"{where}: {one} and {other} exclude each other: leave the kernels of one to others"
        )


def _compared(
    costed: IRModule, name: str, given: Sequence[GivenKernel], model: CostModel, where: str
) -> PlanCosts:
    graph = _graph(costed, name)
    theirs = chosen_candidates(graph, given, where)
    ours = _ours(graph)
    _check_ours(graph, ours)
    func = CANDIDATES.write(graph.func, _numbered((*ours, *theirs)))
    both = CANDIDATES.read(func)
    costs, together = _costs(func, costed, COSTS.read(graph.func), model)
    if missing := [c for c in both if costs.of(c.id).seconds is None]:
        first = missing[0]
        raise CollageError(f"{where}: {first.backend} {first.label} has no cost: {costs.of(first.id).reason}")
    problem = problem_of(graph, both, costs)
    options = {option.id: option for option in problem.options}
    plans = [[options[c.id] for c in part] for part in (both[: len(ours)], both[len(ours) :])]
    names = binding_names(graph)
    _check_values(graph, problem, plans[1], names, where)
    mine, others = (
        tuple(_kernel(c, costs, names) for c in part if c.backend != VIEW)
        for part in (both[: len(ours)], both[len(ours) :])
    )
    differences = sorted(_differences(mine, others), key=lambda each: -abs(each.seconds))
    ours_seconds, given_seconds = (_seconds(problem, plan, where) for plan in plans)
    return PlanCosts(ours_seconds, given_seconds, mine, others, tuple(differences), together)


def _ours(graph: DataflowGraph) -> list[Candidate]:
    """The candidates of the plan that SearchPartition chooses."""
    candidates, costs = CANDIDATES.read(graph.func), COSTS.read(graph.func)
    problem = problem_of(graph, candidates, costs)
    try:
        solution = with_ties_broken(
            problem, solve(problem, priority=tuple(known())), [c.backend for c in candidates]
        )
    except NoCover as error:
        raise NoPlan(why_no_cover(graph, error.index, candidates, costs)) from None
    by_id = {candidate.id: candidate for candidate in candidates}
    return [by_id[option.id] for option in solution.chosen]


def _check_ours(graph: DataflowGraph, ours: Sequence[Candidate]) -> None:
    """Raises CollageError if our plan leaves a binding with candidates to TVM: its cost is not known."""
    covered = _union(ours)
    rest = _union(CANDIDATES.read(graph.func)) & ~covered
    without = [graph.nodes[index] for index in members(rest) if not graph.nodes[index].is_host]
    if without:
        names = f"{without[0].label} ({without[0].var.name})"
        raise CollageError(
            f"our plan has no cost for {names} and {len(without) - 1} more operators, which TVM makes: "
            "a larger budget lets them be measured"
        )


def _union(candidates: Sequence[Candidate]) -> IndexSet:
    found = EMPTY
    for candidate in candidates:
        found |= index_set(candidate.indexes)
    return found


def _numbered(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    return tuple(replace(candidate, id=number) for number, candidate in enumerate(candidates))


def _costs(func: relax.Function, mod: IRModule, before: Costs, model: CostModel) -> tuple[Costs, bool]:
    """The costs of all candidates of ``func``, and whether they were timed together."""
    asked = workloads(func, model, mod)
    distinct = {workload.key: workload for workload in asked.values()}
    open_keys = [key for key in distinct if key not in before.by_key or before.by_key[key].seconds is None]
    by_key = {key: before.by_key[key] for key in distinct if key not in open_keys}
    by_key |= model.costs([distinct[key] for key in open_keys])
    timed = [workload for key, workload in sorted(distinct.items()) if by_key[key].seconds is not None]
    together = False
    if len(timed) > 1 and model.why_not(Capability.CONFIRM) is None and (found := model.confirmed(timed)):
        by_key |= levelled(found, by_key)
        together = True
    views = {c.id: VIEW for c in CANDIDATES.read(func) if c.backend == VIEW}
    keys = {**{id_: workload.key for id_, workload in asked.items()}, **views}
    free = {VIEW: Cost(0.0, origin="formula")} if views else {}
    return replace(before, by_key={**by_key, **free}, keys=keys), together


def _check_values(
    graph: DataflowGraph, problem: Problem, chosen: Sequence[Option], names: Sequence[str], where: str
) -> None:
    """Raises CollageError for a value that two kernels write, or that a kernel reads and no kernel writes."""
    written = EMPTY
    for option in chosen:
        if twice := problem.outputs(option) & written:
            raise CollageError(
                f"{where}: two kernels write {names[first_inside(twice)]}: leave it out of one"
            )
        written |= problem.outputs(option)
    for index in members(left_behind(problem, chosen)):
        if not graph.nodes[index].is_host and any(option.inside >> index & 1 for option in chosen):
            raise CollageError(
                f"{where}: {names[index]} is read by other kernels, and no kernel writes it: add one with it"
            )


def _seconds(problem: Problem, chosen: Sequence[Option], where: str) -> float:
    found = seconds_of(problem, chosen)
    if found is None:
        raise CollageError(f"{where}: its kernels wait for each other in a circle: split one of them")
    return found


def _kernel(candidate: Candidate, costs: Costs, names: Sequence[str]) -> CostedKernel:
    cost = costs.of(candidate.id)
    seconds = cost.seconds or 0.0
    low, high = cost.interval or (seconds, seconds)
    bindings = tuple(names[index] for index in candidate.indexes)
    return CostedKernel(candidate.backend, candidate.title, bindings, seconds, low, high)


def _differences(ours: Sequence[CostedKernel], given: Sequence[CostedKernel]) -> Iterator[KernelDifference]:
    """Groups of kernels that have bindings in common, without those that both plans have."""
    groups: list[tuple[set[str], list[CostedKernel], list[CostedKernel]]] = []
    for side, kernels in enumerate((ours, given)):
        for kernel in kernels:
            names, sides = set(kernel.bindings), ([], [])
            sides[side].append(kernel)
            touching = [group for group in groups if group[0] & names]
            for group in touching:
                groups.remove(group)
                names |= group[0]
                sides[0].extend(group[1])
                sides[1].extend(group[2])
            groups.append((names, *sides))
    for _, mine, theirs in groups:
        if {(k.backend, k.label, k.bindings) for k in mine} != {
            (k.backend, k.label, k.bindings) for k in theirs
        }:
            yield KernelDifference(
                tuple(sorted(mine, key=ours.index)), tuple(sorted(theirs, key=given.index))
            )
