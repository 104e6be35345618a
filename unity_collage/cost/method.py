"""How kernels are timed."""

from __future__ import annotations

from dataclasses import asdict, dataclass

METHOD_VERSION = 1
"""Raised when the same kernel would be measured otherwise: inputs, caches, order, judgement of results."""


@dataclass(frozen=True, slots=True)
class Method:
    """How long and how often kernels are timed. Part of every cost key."""

    percentile: float = 50.0
    """The percentile of all runs that the cost is."""
    confidence: float = 0.95
    """How sure it is that the interval of a cost holds the true percentile."""
    tolerance: float = 0.02
    """Half the width of the interval over the cost: measuring ends when it is reached."""
    min_runs: int = 9
    """From that many runs on the interval of a median is narrower than from the fastest to the slowest run."""
    max_runs: int = 300
    max_seconds: float = 0.1
    """How long the runs of one kernel may take, with what prepares the caches for them."""
    max_warmup_seconds: float = 0.05

    def __post_init__(self) -> None:
        if not (0 < self.percentile < 100 and 0 < self.confidence < 1):
            raise ValueError("a percentile is between 0 and 100, a confidence between 0 and 1")
        if not 0 < self.min_runs <= self.max_runs:
            raise ValueError(f"there are at least 1 and at most {self.max_runs} runs, not {self.min_runs}")

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in asdict(self).items())
