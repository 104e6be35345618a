"""The claims of plans for a range of sizes: the cost at each sample, and how much a plan of its own would save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..search.certificate import Certificate


@dataclass(frozen=True, slots=True)
class PlanAtSample:
    """What a plan for all sizes costs at one of the samples that it is weighed over."""

    sizes: Mapping[str, int]
    weight: float
    """The part of all calls that the sample stands for; together they are 1."""
    seconds: float
    """The cost of kernels, launches and transitions together."""
    problem: str = ""
    """The problem at this sample, as :mod:`.instance` packs it: the weighted sum of all is that of the plan."""


@dataclass(frozen=True, slots=True)
class SizeClaim:
    """What runs at one sample, and the cost of the cheapest plan for this size alone."""

    sizes: Mapping[str, int]
    weight: float
    runs: str
    """The function that runs there: a variant, or the one for all sizes."""
    seconds: float
    """What it costs there."""
    best_seconds: float
    """The cost of the cheapest static plan that the search has found."""
    regret: float
    """``seconds - best_seconds``; below 0 where the plan for all sizes is the cheaper one."""
    proved: bool
    """Whether a proof shows that no static plan of its candidates costs less than ``best_seconds``."""
    variant: str
    """The function with that static plan, which may have been left out."""
    certificate: Certificate | None = None
    """The claim about the static plan, if the variant was left out, or has a given plan: a searched one has its own."""
    problem: str = ""
    """The problem that it answers."""


@dataclass(frozen=True, slots=True)
class RangeClaim:
    """What a function that chooses a plan by the sizes of its inputs claims about each sample."""

    sizes: tuple[SizeClaim, ...]
    expected_seconds: float
    """The weighted sum of what runs at each sample."""
    greatest_regret: float
    """The greatest regret of all samples, in seconds."""
    least_saving: float
    """A variant stays if it saves at least this part of the expected cost."""
    between: tuple[Mapping[str, int], ...] = ()
    """The other sizes over which a plan for all sizes is weighed. No plan for one of them alone was searched."""

    @property
    def worst(self) -> SizeClaim:
        """The sample with the greatest regret."""
        return max(self.sizes, key=lambda each: each.regret)


def regret_text(claim: RangeClaim) -> str:
    """The greatest regret in a line: ``the greatest regret is 0.31 ms (6.2% of the best static plan, at batch 1)``."""
    worst, where = claim.worst, ", ".join(f"{name} {size}" for name, size in claim.worst.sizes.items())
    open_sizes = sum(not each.proved for each in claim.sizes)
    if worst.regret > 0:
        part = (
            f"{worst.regret / worst.best_seconds:.1%} of the best static plan, " if worst.best_seconds else ""
        )
        text = f"the greatest regret is {1e3 * worst.regret:.4g} ms ({part}at {where})"
    else:
        text = f"no static plan that was found is cheaper at any of {len(claim.sizes)} sizes"
    if open_sizes:
        return f"{text}; not proved at {open_sizes} of {len(claim.sizes)} sizes: a static plan there may cost less"
    return f"{text}; proved: each static plan is the cheapest of its candidates"


def named(sizes: Mapping[str, int]) -> str:
    """``batch 1, length 32``."""
    return ", ".join(f"{name} {size}" for name, size in sizes.items())
