"""The compiler as one list of passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from .backends.options import name_of
from .backends.registry import register_codegens, usable
from .cost.model import CostModel
from .defaults import FLOAT32, PRECISIONS, TF32
from .errors import CollageError
from .feedback.settings import BY_DEFAULT
from .measure.here import costs_for
from .measure.measured import MeasuredCost
from .passes.annotate_candidates import AnnotateCandidates
from .passes.channels_last import ChannelsLast
from .passes.choose_by_rule import ChooseByRule
from .passes.choose_devices import ChooseDevices
from .passes.choose_threads import ChooseThreads
from .passes.choose_variants import ChooseVariants
from .passes.confirm_costs import ConfirmCosts
from .passes.correct_costs import CorrectCosts
from .passes.estimate_costs import EstimateCosts
from .passes.estimate_needed_costs import EstimateNeededCosts
from .passes.expand_transposed import ExpandTransposed
from .passes.fuse_remaining import FuseRemaining
from .passes.multiply_bytes import MultiplyBytes
from .passes.offer_layouts import OfferLayouts
from .passes.offer_merged import OfferMerged
from .passes.offload_byoc import OffloadBYOC
from .passes.plan_devices import PlanDevices
from .passes.prepare import Prepare
from .passes.schedule_branches import ScheduleBranches
from .passes.search_partition import SearchPartition
from .passes.split_sizes import SplitSizes
from .passes.stack_products import StackProducts
from .passes.to_precision import ToPrecision
from .passes.weigh_sizes import WeighSizes
from .plan.worth import MOST_REGRET
from .runtime.custom_op_libraries import CustomOpLibraries
from .search.memory_bounded import MemoryGoal
from .specs import PartitionSpec
from .target import current_target


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """The options that choose the passes; ``compile``, ``explain`` and the comparison of programs run parts of them."""

    backends: tuple[str, ...] | None = None
    """Names in preference order; None: all that are available."""
    custom_op_libraries: CustomOpLibraries = ()
    """Paths of libraries with operators of an ONNX model, which ONNX Runtime computes."""
    model: CostModel = field(default_factory=MeasuredCost)
    """The source of costs."""
    specs: tuple[PartitionSpec, ...] = ()
    """Partition rules in addition to those of the backends."""
    without: tuple[str, ...] = ()
    """Names of rules to leave out."""
    precision: str = FLOAT32
    """The precision of products and of values between them; parameters and results keep their types."""
    layouts: bool = False
    """Whether images between kernels may have channels first; otherwise all have channels last."""
    tune_trials: int = 0
    """How many schedules MetaSchedule tries for each TVM kernel that could still be in the plan."""
    every: bool = False
    """Whether to measure every candidate, not only what can still change the plan; always so when kernels are tuned."""
    correct: bool = False
    """Whether to compare costs with the running program, and search again where they are wrong."""
    explain: bool = False
    """Whether to write ``collage.explanation``, which says for every candidate why it was chosen or not."""
    programs: tuple[str, ...] = ()
    """Backends in preference order: also measure for the programs that these make alone, and for the greedy one."""
    hopeless: float = BY_DEFAULT.hopeless
    """Kernels are not measured for a single-backend program that is known to cost this many times as much as ours."""
    measure: bool = True
    """Whether kernels are chosen by their costs; otherwise by rule (:class:`.passes.ChooseByRule`)."""
    unmeasured: str | None = None
    """Why kernels are chosen by rule although costs were asked for; None if they were not, or there are costs."""
    only_choices: bool = False
    """Whether nothing is measured for a function in which nothing has to be chosen (docs/costs.md)."""
    memory: MemoryGoal | None = None
    """The goal for the bytes that a plan holds.

    With a goal every candidate is measured, and no branches run side by side, since more values are held then.
    """

    devices: tuple[relax.VDevice, ...] = ()
    """The devices that values without a place may be on, by cost; empty: none is chosen."""

    most_regret: float = MOST_REGRET
    """A sample size keeps its variant if it would lose more than this part of its best static cost without it."""

    def passes(self) -> list[tvm.transform.Pass]:
        """All passes, from an imported model to a module that ``relax.build`` can build; run them under a target."""
        if not self.measure:
            return [*self.until_candidates(), ChooseByRule(self.backends), OffloadBYOC(), FuseRemaining()]
        return [*self.until_costs(), self.search(), *self.after_search()]

    def until_candidates(self) -> list[tvm.transform.Pass]:
        """The passes that find all candidates, before costs are needed."""
        annotate = AnnotateCandidates(
            backends=self.backends, specs=self.specs, without=self.without, tf32=self.precision == TF32
        )
        return [
            MultiplyBytes(self.backends),
            Prepare(),
            StackProducts(),
            ExpandTransposed(),
            ChannelsLast(),
            *narrowing(self.precision),
            *self._placing(),
            annotate,
            *([OfferLayouts(), annotate] if self.layouts else []),
        ]

    def _placing(self) -> list[tvm.transform.Pass]:
        """The passes that choose devices by cost."""
        if not self.devices:
            return []
        named = (self.backends, self.specs, self.without, self.precision == TF32)
        return [PlanDevices(targets=self.devices), ChooseDevices(self.model, self.devices, *named)]

    def until_costs(self) -> list[tvm.transform.Pass]:
        """The passes after which every candidate has a cost, a lower bound that is high enough, or a reason."""
        return [*self.until_candidates(), *self.costs()]

    def search(self) -> tvm.transform.Pass:
        """The search for the cheapest plan."""
        return SearchPartition(explain=self.explain, memory=self.memory)

    def after_search(self) -> list[tvm.transform.Pass]:
        """The passes from a plan to a module that is ready to be built."""
        branches = [ScheduleBranches(self.model)] if self.memory is None else []
        return [self.choice(), OffloadBYOC(), FuseRemaining(), *branches]

    def choice(self) -> tvm.transform.Pass:
        """The choice of the sample sizes that keep a plan of their own."""
        return ChooseVariants(most_regret=self.most_regret)

    def costs(self) -> list[tvm.transform.Pass]:
        """The passes from candidates to their costs."""
        correcting = [CorrectCosts(self.model)] if self.correct else []
        measuring = [ConfirmCosts(self.model), ChooseThreads(self.model), *correcting]
        weighing = [WeighSizes(self.model), SplitSizes(most_regret=self.most_regret)]
        if self.every or self.tune_trials or self.memory is not None:
            estimating = EstimateCosts(self.model, self.tune_trials)
            return [estimating, *measuring, OfferMerged(self.model), *weighing]
        # Costs that have changed may let other candidates into the plan, which were not worth measuring before.
        return [
            EstimateNeededCosts(self.model, self.programs, self.hopeless, self.only_choices),
            *measuring,
            EstimateNeededCosts(self.model, only_choices=self.only_choices),
            OfferMerged(self.model),
            *weighing,
        ]


def collage(
    backends: Sequence[str] | None = None,
    model: CostModel | None = None,
    *,
    specs: Sequence[PartitionSpec] = (),
    without: Sequence[str] = (),
    precision: str = FLOAT32,
    layouts: bool = False,
    tune_trials: int = 0,
    every: bool = False,
    correct: bool = False,
    explain: bool = False,
    measure: bool = True,
) -> tvm.transform.Sequential:
    """One pass that runs the passes of a :class:`Pipeline` with these fields; nothing is measured without a choice.

    Without a ``model``, costs are measured where kernels for the target in scope run: on this machine, or on its GPU.
    """
    pipeline = Pipeline(
        backends=None if backends is None else tuple(backends),
        model=model or costs_for(current_target()),
        specs=tuple(specs),
        without=tuple(without),
        precision=precision,
        layouts=layouts,
        tune_trials=tune_trials,
        every=every,
        correct=correct,
        explain=explain,
        measure=measure,
        only_choices=not explain,
    )
    return tvm.transform.Sequential(pipeline.passes(), name="collage")


def partition_for(mod: IRModule, backend: str, target: Target | None = None) -> IRModule:
    """``mod`` with functions for ``backend`` wherever it can make a kernel, in the form that TVM's own passes expect.

    It is what ``partition_for_*`` functions of TVM do, with the rules of one backend of this package: each function
    has the attribute ``Codegen`` and composite functions inside, and :class:`tvm.relax.transform.RunCodegen` makes
    runtime modules of them. The code generator is registered for that. Nothing is measured. Raises UnknownBackend or
    UnavailableBackend.
    """
    found = usable(name_of(backend))
    if found.codegen is None:
        raise CollageError(f"{backend} has no code generator: TVM makes its kernels from the operators")
    register_codegens([found])
    steps = [Prepare(), AnnotateCandidates(backends=(backend,)), ChooseByRule((backend,))]
    with target or current_target():
        return tvm.transform.Sequential(steps, name=f"partition_for_{found.name}")(mod)


def partition_for_onednn(mod: IRModule, target: Target | None = None) -> IRModule:
    """:func:`partition_for` oneDNN."""
    return partition_for(mod, "onednn", target)


def narrowing(precision: str) -> list[tvm.transform.Pass]:
    """The pass for a precision, or none for float32; raises CollageError for an unknown precision."""
    if precision not in PRECISIONS:
        raise CollageError(f"there is no precision {precision!r}: use {' or '.join(PRECISIONS)}")
    dtype = PRECISIONS[precision]
    return [] if dtype is None else [ToPrecision(dtype)]
