"""The answers of a rule, as the examiner knows them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .asking import Answer


@dataclass(frozen=True, slots=True)
class AskedCase:
    """A case as a worker gets it."""

    name: str
    function: str

    def arguments(self) -> dict[str, str]:
        """The arguments of a worker's methods for this case."""
        return {"case": self.name, "function": self.function}


@dataclass(frozen=True, slots=True)
class Proposed:
    """A kernel that the rule proposed for a case."""

    case: AskedCase
    number: int
    """The position of the proposal among the rule's answers."""
    label: str
    nodes: tuple[int, ...]
    """The indexes of the nodes that it computes."""
    results: int
    constants: int
    function: str = ""
    """The text of the function, after the kernel was made."""

    @property
    def name(self) -> str:
        """The label and the case, for findings."""
        return f"{self.label} of [{self.case.name}]"

    @property
    def computation(self) -> tuple[str, tuple[int, ...]]:
        """What is computed: kernels of several labels may compute the same."""
        return self.case.name, self.nodes

    def arguments(self) -> Answer:
        """The arguments of a worker's methods for this kernel."""
        return {**self.case.arguments(), "number": self.number}


@dataclass
class Proposals:
    """All answers of the rule."""

    kernels: dict[str, Proposed] = field(default_factory=dict)
    """The distinct kernels, by what they compute."""
    declined: dict[tuple[str, str], tuple[AskedCase, int]] = field(default_factory=dict)
    """A refused call for each operator and reason: the case, and the index of the node."""
    refusals: int = 0
