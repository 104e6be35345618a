"""The cost of splitting a batch: slices of the inputs, and concatenations of the results."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from math import fsum

from tvm import relax

from ..annotations import CANDIDATES
from ..errors import MissingCost
from ..graph import DataflowGraph
from ..plan.candidate import Candidate
from ..plan.ranges import Split
from ..plan.worth import Parts
from ..sizes.parts import SplitAxes, copies
from .asking import workloads
from .model import CostModel

_COPIES = ("relax.strided_slice", "relax.concat")


@dataclass
class SplitCosts:
    """Asks a cost model for the copies of each split once. A copy without a cost counts as infinite."""

    model: CostModel
    variant: relax.Function
    """The function for some number of samples, with static sizes."""
    axes: SplitAxes
    found: dict[tuple[int, Parts], Split] = field(default_factory=dict[tuple[int, Parts], Split])
    """The splits that were asked for."""

    def __call__(self, count: int, parts: Parts) -> float:
        """The seconds of the copies if ``count`` samples are computed as ``parts``."""
        known = self.found.get((count, parts))
        if known is None:
            known = self.found[count, parts] = Split(count, parts, self._seconds(count, parts))
        return known.seconds

    def _seconds(self, count: int, parts: Parts) -> float:
        func = copies(self.variant, self.axes, count, parts)
        nodes = [node for node in DataflowGraph(func).nodes if node.op in _COPIES]
        each = tuple(
            Candidate(number, "tvm", "copy", node.op.removeprefix("relax."), (node.index,))
            for number, node in enumerate(nodes)
        )
        asked = workloads(CANDIDATES.write(func, each), self.model)
        try:
            costs = self.model.costs(list({workload.key: workload for workload in asked.values()}.values()))
        except MissingCost:  # nothing may be measured
            return math.inf
        overheads = self.model.overheads(["tvm"])
        launch = overheads.launches.get("tvm", overheads.launch_seconds)
        seconds = [costs[workload.key].seconds for workload in asked.values()]
        return fsum(math.inf if cost is None else cost + launch for cost in seconds)
