"""The compiler as one list of passes."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from .cost.model import CostModel
from .errors import CollageError
from .measure.measured import MeasuredCost
from .passes.annotate_candidates import AnnotateCandidates
from .passes.channels_last import ChannelsLast
from .passes.choose_threads import ChooseThreads
from .passes.confirm_costs import ConfirmCosts
from .passes.correct_costs import CorrectCosts
from .passes.estimate_costs import EstimateCosts
from .passes.expand_transposed import ExpandTransposed
from .passes.fuse_remaining import FuseRemaining
from .passes.offer_layouts import OfferLayouts
from .passes.offload_byoc import OffloadBYOC
from .passes.prepare import Prepare
from .passes.schedule_branches import ScheduleBranches
from .passes.search_partition import SearchPartition
from .passes.stack_products import StackProducts
from .passes.to_precision import ToPrecision
from .specs import PartitionSpec

FLOAT32 = "f32"
PRECISIONS: dict[str, str | None] = {FLOAT32: None, "bf16": "bfloat16"}
"""What users call the precision of a program: the type that products read and values are stored in."""


def narrowing(precision: str) -> list[tvm.transform.Pass]:
    """The pass for a precision, none for float32; raises CollageError for one that is not in ``PRECISIONS``."""
    if precision not in PRECISIONS:
        raise CollageError(f"there is no precision {precision!r}: {' and '.join(PRECISIONS)} are")
    dtype = PRECISIONS[precision]
    return [] if dtype is None else [ToPrecision(dtype)]


def collage(
    backends: Sequence[str] | None = None,
    model: CostModel | None = None,
    *,
    explain: bool = False,
    specs: Sequence[PartitionSpec] = (),
    without: Sequence[str] = (),
    lazy: bool = False,
    tune_trials: int = 0,
    precision: str = FLOAT32,
    layouts: bool = False,
    correct: bool = False,
) -> tvm.transform.Sequential:
    """An imported model to a module that ``relax.build`` turns into a program; run it under a target.

    ``explain``: ``collage.explanation`` says of every candidate why it was chosen or not. ``specs``: partition rules
    of your own, beside those of the backends; ``without``: names of rules to leave out. ``lazy``: measure only what
    can still change the plan, while the search runs. ``tune_trials``: so many schedules MetaSchedule tries for each
    kernel of TVM that could still win. ``precision``: of products and of what is stored between them, ``f32`` or
    ``bf16``; parameters and results keep their types. ``layouts``: the search may have images between kernels in
    channels first, where they are in channels last otherwise. ``correct``: compare the prices with the running
    program, and search again where they are far from it; not with ``lazy``, whose time is short.
    """
    model = model or MeasuredCost()
    return tvm.transform.Sequential(
        [
            *annotating(backends, specs, without, precision, layouts),
            *([] if lazy else pricing(model, tune_trials)),
            *([CorrectCosts(model)] if correct and not lazy else []),
            SearchPartition(estimator=model, explain=explain),
            OffloadBYOC(),
            FuseRemaining(),
            ScheduleBranches(model),
        ],
        name="collage",
    )


def pricing(model: CostModel, tune_trials: int = 0) -> list[tvm.transform.Pass]:
    """The passes that put a price beside every candidate."""
    return [EstimateCosts(model, tune_trials), ConfirmCosts(model), ChooseThreads(model)]


def annotating(
    backends: Sequence[str] | None = None,
    specs: Sequence[PartitionSpec] = (),
    without: Sequence[str] = (),
    precision: str = FLOAT32,
    layouts: bool = False,
) -> list[tvm.transform.Pass]:
    """The passes before any price is asked: after them every candidate is known."""
    named = None if backends is None else tuple(backends)
    annotate = AnnotateCandidates(backends=named, specs=tuple(specs), without=tuple(without))
    return [
        Prepare(),
        StackProducts(),
        ExpandTransposed(),
        ChannelsLast(),
        *narrowing(precision),
        annotate,
        *([OfferLayouts(), annotate] if layouts else []),
    ]
