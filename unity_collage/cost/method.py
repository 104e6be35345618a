"""How kernels are timed."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Method:
    """How long and how often a kernel is timed. Part of every cost key."""

    warmup_seconds: float = 0.003
    min_runs: int = 15
    max_runs: int = 300
    min_seconds: float = 0.012

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in asdict(self).items())
