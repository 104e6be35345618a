"""ChooseDevices: run each kernel on the device where kernels and the copies that they need cost least in all.

Reads    the VDevices of types and ``collage.freely_placed``, from PlanDevices.
Writes   other VDevices for values that no annotation has placed, ``R.to_vdevice`` exactly where values cross, and
         ``collage.device_plans`` with certificates. Removes ``collage.freely_placed``: every place is chosen now.
Keeps    what is computed; parameters, results, and all that an annotation has placed, where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

import tvm
from tvm import ir, relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, DEVICE_PLANS, FREELY_PLACED
from ..backends.registry import select
from ..cost.asking import workloads
from ..cost.lazy import Search, lazily
from ..cost.model import CostModel, Workload
from ..devices.choice import FreeBlock, labels_of
from ..devices.freedom import Freedom, why_not_moved
from ..devices.moved import MovedBlock
from ..devices.table import DeviceTable, Named
from ..errors import NoPlan
from ..graph import DataflowGraph
from ..graph.devices import place_of, without_devices
from ..measure.measured import MeasuredCost
from ..plan.candidate import Candidate
from ..plan.costs import Costs, Point
from ..plan.device_plan import DeviceKernel, DevicePlan
from ..plan.instance import packed
from ..plan.plan import VIEW
from ..plan.problem import optimistic, problem_of
from ..search import NoCover, Problem, Solution
from ..search.auto import certified, solve
from ..search.ends import ProblemWithEnds
from ..search.plans import solution_of
from ..specs import PartitionSpec, gathered
from ..target import current_target, fields_of
from .annotate_candidates import annotated, is_partitionable, options_by_name, threads_on

Widened = Callable[[DataflowGraph, Iterable[Candidate], Costs, Problem], Problem]
"""Adds options to the problem of a function."""


@tvm.transform.module_pass(opt_level=0, name="collage.ChooseDevices")
@dataclass(frozen=True)
class ChooseDevices:
    """Choose kernels and devices together, for the least sum of kernels, launches, transitions and copies.

    It runs after PlanDevices, on operators in the form that AnnotateCandidates expects. SearchPartition then finds a
    plan that costs no more than the one found here.
    """

    model: CostModel = field(default_factory=MeasuredCost)
    """The source of costs; it has to know the costs of copies."""
    devices: Sequence[Named] | None = None
    """The devices that may be chosen, by VDevice, label or name; None: all of the module."""
    backends: tuple[str, ...] | None = None
    """Names in preference order; None: the ``libs`` of each target, else all that are available."""
    specs: tuple[PartitionSpec, ...] = ()
    """More rules than those of the backends."""
    without: tuple[str, ...] = ()
    """Names of rules to leave out."""
    tf32: bool = False
    """As for AnnotateCandidates."""
    max_states: int = 2_000_000
    """How many states of each block the search visits at most."""
    seconds: float = 60.0
    """The time limit of the search for each block, without measuring."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        table = DeviceTable(mod)
        labels = self._labels(table)
        options = _Options(
            self.model, self.backends, self.specs, self.without, self.tf32, self.max_states, self.seconds
        )
        functions: dict[ir.GlobalVar, ir.BaseFunc] = {}
        for gvar, func in mod.functions_items():
            if is_partitionable(func) and FREELY_PLACED.on(func):
                func = _Chosen(options, mod, table, labels, func).function()
            functions[gvar] = func
        made = IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
        return relax.transform.Normalize()(made)

    def _labels(self, table: DeviceTable) -> tuple[str, ...]:
        """The labels of the devices that may be chosen."""
        if self.devices is None:
            return tuple(table.label(i) for i in range(len(table.devices)))
        return tuple(map(table.label_of_named, self.devices))


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of the pass that a function needs."""

    model: CostModel
    backends: tuple[str, ...] | None
    specs: tuple[PartitionSpec, ...]
    without: tuple[str, ...]
    tf32: bool
    max_states: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The choice for one function."""

    options: _Options
    mod: IRModule
    table: DeviceTable
    labels: tuple[str, ...]
    func: relax.Function

    def function(self) -> relax.Function:
        """The function with its values where they cost least."""
        graph = DataflowGraph(self.func, self.mod)
        freedom = Freedom(self.func, self.table, self.labels)
        numbers = [
            i for i, block in enumerate(self.func.body.blocks) if isinstance(block, relax.DataflowBlock)
        ]
        blocks = {i: FreeBlock(graph, i, freedom) for i in numbers if self.func.body.blocks[i].bindings}
        free = {i: block for i, block in blocks.items() if block.has_choice}
        if not free:
            return self.func
        if (reason := why_not_moved(graph, self.table, self.mod)) is not None:
            return DEVICE_PLANS.write(self.func, (DevicePlan(reason=reason),))
        return self._moved(graph, free)

    def _moved(self, graph: DataflowGraph, free: Mapping[int, FreeBlock]) -> relax.Function:
        devices = {self.table.label(i): device for i, device in enumerate(self.table.devices)}
        every = tuple(dict.fromkeys((*self.labels, *labels_of(free.values()))))
        bare = DataflowGraph(without_devices(self.func), self.mod)
        candidates, asked = self._candidates(bare, {label: devices[label] for label in every})
        copies = _copies(self.options.model, self.table, {label: place_of(devices[label]) for label in every})
        taken = {var.name for var in (*self.func.params, *(node.var for node in graph.nodes))}
        made, plans = list(self.func.body.blocks), []
        for number, block in free.items():
            fitting = {candidate.id: candidate for candidate in candidates if block.fits(candidate)}
            asking = {id_: workload for id_, workload in asked.items() if id_ in fitting}
            choice = _BlockChoice(self.options, block, fitting, copies)
            posed, solution, plan = choice.made(self.func, asking)
            moved = MovedBlock(block, devices, taken)
            made[number] = moved.dataflow(posed, solution)
            plans.append(replace(plan, copies=tuple(moved.copies)))
        body = relax.SeqExpr(made, self.func.body.body)
        func = relax.Function(self.func.params, body, self.func.ret_ty, self.func.is_pure, self.func.attrs)
        return DEVICE_PLANS.write(func.without_attr(FREELY_PLACED.name), tuple(plans))

    def _candidates(
        self, bare: DataflowGraph, devices: Mapping[str, relax.VDevice]
    ) -> tuple[list[Candidate], dict[int, Workload]]:
        """The candidates on each device, and their workloads by id; ``bare`` is the function without devices."""
        found: list[Candidate] = []
        asked: dict[int, Workload] = {}
        here, how = current_target(), self.options
        for label, device in devices.items():
            target = device.target
            with target:
                backends = select(how.backends, target)
                specs = gathered(backends, how.specs, bare, target)
                func = annotated(bare, specs, target, how.without, how.tf32, options_by_name(backends))
                limited = [replace(c, threads=threads_on(target, c.backend)) for c in CANDIDATES.read(func)]
                func = CANDIDATES.write(func, tuple(limited))
                answers = workloads(func, self.options.model, self.mod)
            own = "" if fields_of(target) == fields_of(here) else str(target)
            first = len(found)
            found += [replace(each, id=first + each.id, device=label) for each in CANDIDATES.read(func)]
            asked |= {first + id_: replace(workload, target=own) for id_, workload in answers.items()}
        return found, asked


@dataclass(frozen=True, slots=True)
class _BlockChoice:
    """The choice for one dataflow block, among ``candidates`` by id."""

    options: _Options
    block: FreeBlock
    candidates: Mapping[int, Candidate]
    copies: Mapping[str, tuple[Point, ...]]

    def made(
        self, func: relax.Function, asked: Mapping[int, Workload]
    ) -> tuple[ProblemWithEnds, Solution, DevicePlan]:
        """The problem, its cheapest solution inside of the ends, and the plan that describes it; raises NoPlan."""
        annotated = CANDIDATES.write(func, tuple(self.candidates.values()))
        search = Search(lambda costs: self._posed(costs).problem, throughs=None)
        try:
            costs = lazily(annotated, asked, self.options.model, search)
            posed = self._posed(costs)
            found = self._solved(posed.problem)
        except NoCover as error:
            raise NoPlan(f"no devices for `{self._name(error.index)}`: no kernel of it has a cost") from None
        whole, bound = self._posed(costs, optimistic), found.lower_bound
        if len(whole.problem.options) > len(posed.problem.options):
            bound = self._solved(whole.problem).lower_bound
        found = replace(found, lower_bound=min(bound, found.seconds))
        return posed, posed.inside(found), self._plan(whole.problem, found)

    def _posed(self, costs: Costs, widened: Widened | None = None) -> ProblemWithEnds:
        """The problem of the block for these costs, with what ``widened`` adds to that of the function."""
        costs, candidates, graph = (
            replace(costs, copies=self.copies),
            self.candidates.values(),
            self.block.graph,
        )
        problem = problem_of(graph, candidates, costs)
        return self.block.problem(widened(graph, candidates, costs, problem) if widened else problem, costs)

    def _solved(self, problem: Problem) -> Solution:
        return solve(problem, max_states=self.options.max_states, seconds=self.options.seconds)

    def _name(self, index: int) -> str:
        """The variable of a node of the problem; the first nodes of the problem are values from outside."""
        number = index - len(self.block.outside)
        return self.block.nodes[number].var.name if 0 <= number < len(self.block.nodes) else "a result"

    def _plan(self, problem: Problem, found: Solution) -> DevicePlan:
        names = [node.var.name for node in self.block.graph.nodes]
        kernels = tuple(
            DeviceKernel(
                candidate.backend,
                candidate.label,
                candidate.device,
                tuple(names[index] for index in candidate.indexes),
                option.seconds,
            )
            for option in found.chosen
            if (candidate := self.candidates.get(option.id)) is not None and candidate.backend != VIEW
        )
        apart = {pair: s for pair, s in problem.transitions.items() if ">".join(pair) not in self.copies}
        without = solution_of(replace(problem, transitions=apart), found.chosen, found.algorithm)
        return DevicePlan(
            kernels,
            seconds=found.seconds,
            copy_seconds=found.seconds - without.seconds,
            certificate=certified(problem, found),
            problem=packed(problem),
        )


def _copies(model: CostModel, table: DeviceTable, places: Mapping[str, str]) -> dict[str, tuple[Point, ...]]:
    """What copies between devices cost, by their labels; ``places``: the device of the machine of each."""
    numbers = {table.label(index): index for index in range(len(table.devices))}
    on, known = tuple(dict.fromkeys(places.values())), dict[bool, Mapping[str, Sequence[Point]]]()
    found: dict[str, tuple[Point, ...]] = {}
    for source, destination in permutations(places, 2):
        shared = table.is_free_copy(numbers[source], numbers[destination])
        if shared not in known:
            known[shared] = model.copies(on, shared=shared)
        found[f"{source}>{destination}"] = tuple(known[shared][f"{places[source]}>{places[destination]}"])
    return found
