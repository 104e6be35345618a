"""What a rule has said, as the examiner knows it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .asking import Answer


@dataclass(frozen=True, slots=True)
class AskedCase:
    """A case as a worker is given it."""

    name: str
    function: str

    def arguments(self) -> dict[str, str]:
        return {"case": self.name, "function": self.function}


@dataclass(frozen=True, slots=True)
class Proposed:
    """A kernel that the rule has proposed for a case."""

    case: AskedCase
    number: int
    """Which of the rule's answers it is."""
    label: str
    results: int
    constants: int
    function: str = ""
    """As text, once it has been made."""

    @property
    def name(self) -> str:
        return f"{self.label} of [{self.case.name}]"

    def arguments(self) -> Answer:
        return {**self.case.arguments(), "number": self.number}


@dataclass
class Proposals:
    """All that the rule has said."""

    kernels: dict[str, Proposed] = field(default_factory=dict)
    """Distinct ones, by what they compute."""
    declined: dict[tuple[str, str], tuple[AskedCase, int]] = field(default_factory=dict)
    """By operator and reason one call that it has refused: the case, and the node's index."""
    refusals: int = 0
