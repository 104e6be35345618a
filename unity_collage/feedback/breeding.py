"""Breeds plans by the measured time of whole programs: the second level of the Collage paper.

The alternatives of each group of kernels are the genes of an evolutionary search.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import CollageError
from ..lowering.library_file import write
from ..search import Problem, Solution
from ..search.alternatives import Parts, alternatives, seconds_of
from ..search.evolutionary import EvolutionSettings, EvolutionState, Genome, evolve, first_state
from ..search.plans import solution_of
from .candidates import Choice


@dataclass(frozen=True, slots=True)
class Breeding:
    """How long to breed plans, how, and where to store the state of the search."""

    seconds: float = 600.0
    """The time limit; no program is built after it."""
    settings: EvolutionSettings = field(
        default_factory=lambda: EvolutionSettings(population=12, generations=20)
    )
    """The parameters of the evolutionary search."""
    state: Path | None = None
    """A file for the state of the search, written after each program; a search that was ended continues from it.

    It holds for one model with the same kernels on one machine: for another one the search starts from the beginning.
    """


def bred(
    problems: Mapping[str, Problem],
    base: Choice,
    fitness: Callable[[Choice], float | None],
    breeding: Breeding,
    about: str = "",
    is_over: Callable[[], bool] = lambda: False,
) -> Choice:
    """The plan with the best ``fitness`` among the alternatives of ``base``; ``base`` itself is one of the first.

    ``about``: a text of what the stored times hold for, besides the groups of kernels. ``is_over``: whether the user
    has stopped the search, asked before each program.
    """
    genes = _Genes.of(problems, base)
    name = genes.digest(about)

    def measured(genome: Genome) -> float | None:
        plan = genes.plan(genome)
        return fitness(plan) if genes.is_plan(plan) else None

    def keep(state: EvolutionState) -> None:
        if breeding.state is not None:
            write(breeding.state, json.dumps({"about": name, **state.to_data()}).encode())

    state = _stored_state(breeding.state, name)
    state = state or first_state(genes.sizes, genes.first_genomes(), breeding.settings)
    state = evolve(genes.sizes, measured, state, breeding.settings, breeding.seconds, keep, is_over)
    return base if state.best is None else genes.plan(state.best[0])


@dataclass(frozen=True, slots=True)
class _Genes:
    """The choices for each group of kernels. A genome has the number of one choice for each group."""

    problems: Mapping[str, Problem]
    groups: Sequence[tuple[str, Sequence[Parts]]]
    """Function and choices of each group."""

    @classmethod
    def of(cls, problems: Mapping[str, Problem], base: Choice) -> _Genes:
        groups = [
            (function, choices)
            for function, problem in problems.items()
            for choices in alternatives(problem, _solution(problem, base[function]))
        ]
        return cls(problems, groups)

    @property
    def sizes(self) -> list[int]:
        """The number of choices of each group."""
        return [len(choices) for _, choices in self.groups]

    def digest(self, about: str) -> str:
        """A digest of the kernels of each choice, and of ``about``."""
        choices = [
            [function, [[(option.id, option.backend) for option in parts] for parts in choices]]
            for function, choices in self.groups
        ]
        return hashlib.sha256(json.dumps([choices, about]).encode()).hexdigest()[:32]

    def plan(self, genome: Genome) -> Choice:
        """The candidates that a genome chooses, by function."""
        ids: dict[str, list[int]] = {function: [] for function in self.problems}
        for (function, choices), number in zip(self.groups, genome, strict=True):
            ids[function] += [option.id for option in choices[number]]
        return {function: tuple(sorted(chosen)) for function, chosen in ids.items()}

    def is_plan(self, plan: Choice) -> bool:
        """Whether the chosen kernels of each function can run in some order, without a cycle."""
        return all(
            seconds_of(problem, [o for o in problem.options if o.id in plan[function]]) is not None
            for function, problem in self.problems.items()
        )

    def first_genomes(self) -> list[Genome]:
        """The genome of the base plan, then one for each backend that has as many of its kernels as possible."""
        options = (option for problem in self.problems.values() for option in problem.options)
        backends = dict.fromkeys(option.backend for option in options)
        return [
            tuple(0 for _ in self.groups),
            *(tuple(_first_of(backend, choices) for _, choices in self.groups) for backend in backends),
        ]


def _first_of(backend: str, choices: Sequence[Parts]) -> int:
    """The first choice with kernels of ``backend`` only; if there is none, the first choice."""
    owners = [{option.backend for option in parts} for parts in choices]
    return next((number for number, found in enumerate(owners) if found <= {backend}), 0)


def _solution(problem: Problem, chosen: tuple[int, ...]) -> Solution:
    return solution_of(problem, [option for option in problem.options if option.id in chosen], "given")


def _stored_state(path: Path | None, name: str) -> EvolutionState | None:
    """The state that a search of the same ``name`` stored; raises CollageError for another file."""
    if path is None or not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        found = EvolutionState.from_data(data)
        return found if data.get("about") == name else None
    except (ValueError, KeyError, TypeError) as error:
        raise CollageError(f"{path} is not the state of a breeding: {error}") from error
