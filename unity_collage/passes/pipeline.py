"""The compiler as one list of passes."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from ..cost.measured import MeasuredCost
from ..cost.workload import CostModel
from ..specs import PartitionSpec
from .annotate_candidates import AnnotateCandidates
from .channels_last import ChannelsLast
from .estimate_costs import EstimateCosts
from .fuse_remaining import FuseRemaining
from .offload_byoc import OffloadBYOC
from .prepare import Prepare
from .search_partition import SearchPartition


def collage(
    backends: Sequence[str] | None = None,
    model: CostModel | None = None,
    *,
    explain: bool = False,
    specs: Sequence[PartitionSpec] = (),
    without: Sequence[str] = (),
    lazy: bool = False,
    tune_trials: int = 0,
) -> tvm.transform.Sequential:
    """An imported model to a module that ``relax.build`` turns into a program; run it under a target.

    ``explain``: ``collage.explanation`` says of every candidate why it was chosen or not. ``specs``: partition rules
    of your own, beside those of the backends; ``without``: names of rules to leave out. ``lazy``: measure only what
    can still change the plan, while the search runs. ``tune_trials``: so many schedules MetaSchedule tries for each
    kernel of TVM that could still win.
    """
    model = model or MeasuredCost()
    return tvm.transform.Sequential(
        [
            *annotating(backends, specs, without),
            *([] if lazy else [EstimateCosts(model=model, tune_trials=tune_trials)]),
            SearchPartition(estimator=model, explain=explain),
            OffloadBYOC(),
            FuseRemaining(),
        ],
        name="collage",
    )


def annotating(
    backends: Sequence[str] | None = None,
    specs: Sequence[PartitionSpec] = (),
    without: Sequence[str] = (),
) -> list[tvm.transform.Pass]:
    """The passes before any price is asked: after them every candidate is known."""
    named = None if backends is None else tuple(backends)
    return [
        Prepare(),
        ChannelsLast(),
        AnnotateCandidates(backends=named, specs=tuple(specs), without=tuple(without)),
    ]
