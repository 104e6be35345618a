"""How kernels are timed."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Method:
    """How long and how often kernels are timed. Part of every cost key."""

    percentile: float = 50.0
    """What the price is: of all runs so many percent are faster."""
    confidence: float = 0.95
    """How sure it is that the interval of a price holds the true percentile."""
    tolerance: float = 0.02
    """Half the width of the interval over the price: narrower is not asked for."""
    min_runs: int = 9
    """From so many runs on the interval of a median is narrower than from the fastest to the slowest run."""
    max_runs: int = 300
    max_seconds: float = 0.1
    """What the runs of one kernel may take, with what prepares the caches for them."""
    max_warmup_seconds: float = 0.05

    def __post_init__(self) -> None:
        if not (0 < self.percentile < 100 and 0 < self.confidence < 1):
            raise ValueError("a percentile is between 0 and 100, a confidence between 0 and 1")
        if not 0 < self.min_runs <= self.max_runs:
            raise ValueError(f"there are at least 1 and at most {self.max_runs} runs, not {self.min_runs}")

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in asdict(self).items())
