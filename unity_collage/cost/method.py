"""The measuring method: how kernels are timed."""

from __future__ import annotations

from dataclasses import asdict, dataclass

METHOD_VERSION = 2
"""Raised when the same kernel would be measured differently: inputs, caches, order, checks of the results."""


@dataclass(frozen=True, slots=True)
class Method:
    """How long and how often kernels are timed; part of every fingerprint."""

    percentile: float = 50.0
    """The cost is this percentile of all runs."""
    confidence: float = 0.95
    """The probability that the interval of a cost contains the true percentile."""
    tolerance: float = 0.02
    """Measuring ends when half the width of the interval is at most this part of the cost."""
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

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in asdict(self).items())
