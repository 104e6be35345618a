"""The requests to the measuring process and its replies: plain data, written as lines of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

OURS = "ours"
"""The name of ours. Its programs refuse to be captured by torch: they capture their kernels themselves."""
EAGER, COMPILED = "torch eager, captured", "torch.compile"
ALONE = ("cudnn", "cublas", "tvm")
BATCHES, PRECISIONS = (1, 16), ("f32", "tf32", "f16")
RESULT, WARM_UP = ": result", ": warm-up"
"""The suffix of the names of a competitor's later steps."""


@dataclass(frozen=True)
class Settings:
    """Settings of all jobs."""

    device: str = "cuda"
    """``cpu`` is for trials of the benchmark itself: nothing is captured."""
    calls: int = 40
    """How many calls in a row are one sample."""
    rounds: int = 15
    """How many samples each competitor has."""
    warm_up: int = 20
    """How many calls of each competitor come before the first round."""
    budget_seconds: float = 35.0
    """The limit for measuring kernels in one compile of ours."""
    mode: str = "max-autotune"
    """Of torch.compile."""
    freezing: bool = False
    """Whether torch.compile takes weights as constants."""
    database: str | None = None
    """Of our costs."""


@dataclass(frozen=True)
class Job:
    """One network at one batch size and precision."""

    model: str
    batch: int
    precision: str
    competitors: tuple[str, ...]
    failed: dict[str, str] = field(default_factory=dict)
    """Competitors that are not tried again, with the reason."""

    @property
    def title(self) -> str:
        return f"{self.model} batch {self.batch} {self.precision}"

    def without(self, competitor: str, reason: str) -> Job:
        """The job once a competitor has ended the process."""
        failed = {**self.failed, competitor: reason}
        return Job(self.model, self.batch, self.precision, self.competitors, failed)

    def row(self) -> dict[str, Any]:
        """The row of results without results."""
        return {"model": self.model, "batch": self.batch, "precision": self.precision, "results": {}}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Job:
        return Job(
            data["model"], data["batch"], data["precision"], tuple(data["competitors"]), dict(data["failed"])
        )


def competitors(alone: bool, left_out: Sequence[str] = ()) -> tuple[str, ...]:
    """All competitors in the order in which they are made; the one that takes longest comes last."""
    names = (EAGER, OURS, *(f"{OURS}: {name}" for name in ALONE if alone), COMPILED)
    return tuple(name for name in names if name not in left_out)


def competitor_of(step: str) -> str:
    """The competitor that a step is for, or the step itself."""
    return step.removesuffix(RESULT).removesuffix(WARM_UP)


def backends_of(competitor: str) -> list[str] | None:
    """The backends that a competitor of ours has; None: all."""
    _, found, name = competitor.partition(f"{OURS}: ")
    return [name] if found else None
