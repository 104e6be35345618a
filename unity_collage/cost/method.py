"""The measuring method: how kernels are timed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import count

from ..errors import CollageError

METHOD_VERSION = 5
"""Raised when the same kernel would be measured differently: inputs, caches, order, checks of the results."""

MEDIAN = 50.0
"""The default percentile of a cost."""

_MOST_SECONDS = 2.0
"""The limit for all runs of one kernel, for any percentile."""


@dataclass(frozen=True, slots=True)
class Method:
    """How long and how often kernels are timed; part of every fingerprint."""

    percentile: float = MEDIAN
    """The cost is this percentile of all runs."""
    confidence: float = 0.95
    """The probability that the interval of a cost contains the true percentile."""
    tolerance: float = 0.04
    """Measuring ends when half the width of the interval is at most this part of the cost.

    Kernels near the plan are timed once more, in turns (pass ConfirmCosts), so the first cost need not be sharper.
    """
    min_runs: int = 9
    """The least number of runs. With fewer than 9 the interval of a median spans all runs."""
    max_runs: int = 300
    max_seconds: float = 0.1
    """The limit for all runs of one kernel, including the preparation of the caches."""
    max_warmup_seconds: float = 0.05

    def __post_init__(self) -> None:
        if not (0 < self.percentile < 100 and 0 < self.confidence < 1):
            raise ValueError("a percentile is between 0 and 100, a confidence between 0 and 1")
        if not 0 < self.min_runs <= self.max_runs:
            raise ValueError(f"there are at least 1 and at most {self.max_runs} runs, not {self.min_runs}")

    @classmethod
    def of(cls, percentile: float) -> Method:
        """The method for another percentile than the median: there are enough runs for its interval to have two ends.

        The 90th percentile takes 54 runs and the 99th 555. The time limit grows with them, up to ``_MOST_SECONDS``: a
        slower kernel has fewer runs (:func:`least_runs`).
        """
        if not 0 < percentile < 100:
            raise CollageError(f"a percentile is between 0 and 100, not {percentile:g}")
        usual = cls()
        if percentile == usual.percentile:
            return usual
        least = least_runs(percentile, usual.confidence)
        return cls(
            percentile=float(percentile),
            min_runs=max(usual.min_runs, least),
            max_runs=max(usual.max_runs, 2 * least),
            max_seconds=min(_MOST_SECONDS, usual.max_seconds * max(1.0, least / usual.min_runs)),
        )

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in asdict(self).items())


def least_runs(percentile: float, confidence: float) -> int:
    """The least number of runs with which the percentile's interval ends neither at the fastest nor at the slowest
    run.

    The number of runs below the percentile is binomial. The probability that all runs, or all but one, are on one
    side of it may be at most ``(1 - confidence) / 2`` (:func:`unity_collage.runtime.timing.interval`).
    """
    side, tail = max(percentile, 100 - percentile) / 100, (1 - confidence) / 2
    return next(n for n in count(2) if side**n + n * (1 - side) * side ** (n - 1) <= tail)
