"""Plans bred by the measured time of whole programs: the second level of the Collage paper.

The alternatives of each group of kernels are the genes of an evolutionary search.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..search import Problem, Solution
from ..search.alternatives import alternatives, seconds_of
from ..search.evolutionary import EvolutionSettings, EvolutionState, Genome, evolve, first_state
from ..search.plans import solution_of
from .candidates import Choice


@dataclass(frozen=True, slots=True)
class Breeding:
    """How long, and where it stands."""

    seconds: float = 600.0
    """No program is built after that."""
    settings: EvolutionSettings = field(
        default_factory=lambda: EvolutionSettings(population=12, generations=20)
    )
    state: Path | None = None
    """A file that keeps all that was measured: a search that was stopped goes on from there."""


def bred(
    problems: dict[str, Problem], base: Choice, fitness: Callable[[Choice], float | None], breeding: Breeding
) -> Choice:
    """The best plan found among the alternatives of ``base``, which is one of the first."""
    groups = [
        (function, choices)
        for function, problem in problems.items()
        for choices in alternatives(problem, _solution(problem, base[function]))
    ]
    sizes = [len(choices) for _, choices in groups]

    def plan_of(genome: Genome) -> Choice:
        return {
            function: tuple(
                sorted(
                    part.id
                    for (owner, choices), number in zip(groups, genome, strict=True)
                    if owner == function
                    for part in choices[number]
                )
            )
            for function in problems
        }

    def measured(genome: Genome) -> float | None:
        plan = plan_of(genome)
        for function, problem in problems.items():
            if seconds_of(problem, [o for o in problem.options if o.id in plan[function]]) is None:
                return None
        return fitness(plan)

    backends = dict.fromkeys(option.backend for problem in problems.values() for option in problem.options)
    seeds = [tuple(0 for _ in groups)] + [
        tuple(
            _first_of(backend, [[part.backend for part in parts] for parts in choices])
            for _, choices in groups
        )
        for backend in backends
    ]
    state = _kept(breeding.state, sizes) or first_state(sizes, seeds, breeding.settings)
    state = evolve(sizes, measured, state, breeding.settings, breeding.seconds)
    if breeding.state is not None:
        breeding.state.write_text(json.dumps({"sizes": sizes, **state.to_data()}))
    return base if state.best is None else plan_of(state.best[0])


def _first_of(backend: str, choices: list[list[str]]) -> int:
    """The first choice whose kernels are all of ``backend``; the plan's own if there is none."""
    return next((n for n, parts in enumerate(choices) if all(part == backend for part in parts)), 0)


def _solution(problem: Problem, chosen: tuple[int, ...]) -> Solution:
    return solution_of(problem, [option for option in problem.options if option.id in chosen], "given")


def _kept(path: Path | None, sizes: list[int]) -> EvolutionState | None:
    """What an earlier search has left, if it was about the same groups."""
    if path is None or not path.exists():
        return None
    data = json.loads(path.read_text())
    return EvolutionState.from_data(data) if data.get("sizes") == sizes else None
