"""The compiler as one list of passes."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from ..cost.measured import MeasuredCost
from ..cost.workload import CostModel
from .annotate_candidates import AnnotateCandidates
from .channels_last import ChannelsLast
from .estimate_costs import EstimateCosts
from .fuse_remaining import FuseRemaining
from .offload_byoc import OffloadBYOC
from .prepare import Prepare
from .search_partition import SearchPartition


def collage(
    backends: Sequence[str] | None = None, model: CostModel | None = None
) -> tvm.transform.Sequential:
    """An imported model to a module that ``relax.build`` turns into a program; run it under a target."""
    return tvm.transform.Sequential(
        [
            Prepare(),
            ChannelsLast(),
            AnnotateCandidates(backends=None if backends is None else tuple(backends)),
            EstimateCosts(model=model or MeasuredCost()),
            SearchPartition(),
            OffloadBYOC(),
            FuseRemaining(),
        ],
        name="collage",
    )
