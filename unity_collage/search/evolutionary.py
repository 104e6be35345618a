"""The paper's second level: a genetic search over a plan's groups, for costs that do not add up.

A genome holds one choice for each group. The paper had one bit a group (keep it, or give it to the graph compiler) and
replaced the whole population in every generation; here a group has any number of choices and the best genomes stay.
Equal seeds and equal costs give equal results, and a search that was stopped goes on from its state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

Genome = tuple[int, ...]
"""For each group, the number of its choice."""

Fitness = Callable[[Genome], "float | None"]
"""Seconds, as measured end to end for instance; None if the genome does not work. Asked once for each genome."""


@dataclass(frozen=True, slots=True)
class EvolutionSettings:
    """How the search breeds. Probabilities are the paper's."""

    population: int = 30
    generations: int = 40
    tournament: int = 5
    """The best of so many becomes a parent."""
    crossover: float = 0.5
    """Probability that two parents swap a stretch of choices."""
    mutation: float = 0.2
    """Probability that a child mutates."""
    gene: float = 0.05
    """Probability of each choice to change then."""
    elite: int = 2
    """So many of the best survive as they are."""
    seed: int = 64


@dataclass(frozen=True, slots=True)
class EvolutionState:
    """Where a search stands."""

    generation: int
    population: tuple[Genome, ...]
    """To be measured next, as far as it is not known."""
    known: dict[Genome, float | None] = field(default_factory=dict[Genome, "float | None"])
    """All that was measured, in the order of measuring."""

    @property
    def best(self) -> tuple[Genome, float] | None:
        """The fastest genome, the first one of equals; None if none works."""
        working = [(genome, seconds) for genome, seconds in self.known.items() if seconds is not None]
        return min(working, key=lambda item: item[1], default=None)

    def to_data(self) -> dict[str, Any]:
        """As JSON has it."""
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
    """The first population: ``seeds``, each group's first choice if there are none, then random genomes."""
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
) -> EvolutionState:
    """Breed and measure until all generations or ``seconds`` are over; ``sizes`` says how many choices a group has.

    The clock is read before every measurement. What it cuts short is repeated from memory when the search goes on.
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
            if time.monotonic() >= deadline:
                return EvolutionState(generation, population, known)
            known[genome] = fitness(genome)
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
    """Both with the stretch between two points swapped."""
    first, last = sorted(random.randrange(len(one) + 1) for _ in range(2))
    return (
        one[:first] + other[first:last] + one[last:],
        other[:first] + one[first:last] + other[last:],
    )


def _mutated(genome: Genome, sizes: Sequence[int], settings: EvolutionSettings, random: Random) -> Genome:
    """Now and then some choices become others."""
    if random.random() >= settings.mutation:
        return genome
    return tuple(
        (choice + random.randrange(1, size)) % size
        if size > 1 and random.random() < settings.gene
        else choice
        for choice, size in zip(genome, sizes, strict=True)
    )
