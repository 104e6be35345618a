"""How kernels are timed."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Method:
    """How long and how often a kernel is timed. Part of every cost key."""

    warmup_seconds: float = 0.003
    min_runs: int = 7
    max_runs: int = 2000
    min_seconds: float = 0.012
    cold_runs: int = 15
    """Runs with the caches emptied before each, where the weights are cold."""
    evict_bytes: int = 64 << 20
    """More than the last-level cache share of the machine."""

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in asdict(self).items())
