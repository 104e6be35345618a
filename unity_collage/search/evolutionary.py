"""The second level of Collage (Jeon et al., 2022): a genetic search over the groups of a plan.

It is for costs that do not add up, such as end-to-end times. A genome has one choice for each group. The paper has one
bit for each group: keep it, or give it to the graph compiler. It replaces the whole population in each generation.
Here a group has any number of choices, and the best genomes survive. Equal seeds and equal costs give equal results,
and an interrupted search continues from its state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

Genome = tuple[int, ...]
"""The number of the choice of each group."""

Fitness = Callable[[Genome], "float | None"]
"""The seconds of a genome, for instance measured end to end; None if it does not work. Called once for each genome."""


@dataclass(frozen=True, slots=True)
class EvolutionSettings:
    """The parameters of the genetic search. The probabilities are those of the paper."""

    population: int = 30
    generations: int = 40
    tournament: int = 5
    """How many random genomes are compared to select one parent."""
    crossover: float = 0.5
    """The probability that two parents swap a stretch of choices."""
    mutation: float = 0.2
    """The probability that a child mutates."""
    gene: float = 0.05
    """The probability that a choice changes in a mutation."""
    elite: int = 2
    """How many of the best genomes survive unchanged."""
    seed: int = 64


@dataclass(frozen=True, slots=True)
class EvolutionState:
    """The state of a search, from which it can be continued."""

    generation: int
    population: tuple[Genome, ...]
    """The genomes of this generation; those that are not known are measured next."""
    known: dict[Genome, float | None] = field(default_factory=dict[Genome, "float | None"])
    """The result of each genome, in the order of measuring."""

    @property
    def best(self) -> tuple[Genome, float] | None:
        """The fastest genome, the first one of several; None if none works."""
        working = [(genome, seconds) for genome, seconds in self.known.items() if seconds is not None]
        return min(working, key=lambda item: item[1], default=None)

    def to_data(self) -> dict[str, Any]:
        """The state as data for JSON."""
        return {
            "generation": self.generation,
            "population": [list(genome) for genome in self.population],
            "known": [[list(genome), seconds] for genome, seconds in self.known.items()],
        }

    @staticmethod
    def from_data(data: dict[str, Any]) -> EvolutionState:
        """The inverse of ``to_data``."""
        return EvolutionState(
            int(data["generation"]),
            tuple(tuple(genome) for genome in data["population"]),
            {tuple(genome): seconds for genome, seconds in data["known"]},
        )


def first_state(
    sizes: Sequence[int], seeds: Sequence[Genome] = (), settings: EvolutionSettings | None = None
) -> EvolutionState:
    """The first population: ``seeds``, or the first choice of each group if there are none, then random genomes."""
    settings = settings or EvolutionSettings()
    random = Random(f"{settings.seed}/start")
    population = list(seeds) or [(0,) * len(sizes)]
    while len(population) < settings.population:
        population.append(tuple(random.randrange(size) for size in sizes))
    return EvolutionState(0, tuple(population))


def evolve(
    sizes: Sequence[int],
    fitness: Fitness,
    state: EvolutionState | None = None,
    settings: EvolutionSettings | None = None,
    seconds: float = float("inf"),
    keep: Callable[[EvolutionState], object] = lambda _: None,
    is_over: Callable[[], bool] = lambda: False,
) -> EvolutionState:
    """Breed and measure until all generations or ``seconds`` are over; ``sizes`` has the number of choices of each
    group.

    The clock is read before every measurement. An interrupted generation is repeated when the search continues, with
    the results that are known. ``keep`` is called with the state after each measurement, which may be the last one.
    Once ``is_over`` returns True nothing more is measured.
    """
    settings = settings or EvolutionSettings()
    state = state or first_state(sizes, (), settings)
    deadline = time.monotonic() + seconds
    known = dict(state.known)
    generation, population = state.generation, state.population
    while True:
        for genome in population:
            if genome in known:
                continue
            if is_over() or time.monotonic() >= deadline:
                return EvolutionState(generation, population, known)
            known[genome] = fitness(genome)
            keep(EvolutionState(generation, population, known))
        if generation >= settings.generations:
            return EvolutionState(generation, population, known)
        population = _bred(sizes, population, known, settings, Random(f"{settings.seed}/{generation}"))
        generation += 1


def _bred(
    sizes: Sequence[int],
    population: tuple[Genome, ...],
    known: dict[Genome, float | None],
    settings: EvolutionSettings,
    random: Random,
) -> tuple[Genome, ...]:
    def rank(genome: Genome) -> float:
        seconds = known[genome]
        return float("inf") if seconds is None else seconds

    following = sorted(dict.fromkeys(population), key=rank)[: settings.elite]
    while len(following) < settings.population:
        one, other = (min(random.choices(population, k=settings.tournament), key=rank) for _ in range(2))
        if random.random() < settings.crossover:
            one, other = _crossed(one, other, random)
        following += [_mutated(child, sizes, settings, random) for child in (one, other)]
    return tuple(following[: settings.population])


def _crossed(one: Genome, other: Genome, random: Random) -> tuple[Genome, Genome]:
    """Both genomes after a two-point crossover."""
    first, last = sorted(random.randrange(len(one) + 1) for _ in range(2))
    return (
        one[:first] + other[first:last] + one[last:],
        other[:first] + one[first:last] + other[last:],
    )


def _mutated(genome: Genome, sizes: Sequence[int], settings: EvolutionSettings, random: Random) -> Genome:
    """``genome``, in which with probability ``mutation`` each choice changes with probability ``gene``."""
    if random.random() >= settings.mutation:
        return genome
    return tuple(
        (choice + random.randrange(1, size)) % size
        if size > 1 and random.random() < settings.gene
        else choice
        for choice, size in zip(genome, sizes, strict=True)
    )
