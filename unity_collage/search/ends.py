"""Parameters and results with devices: nodes around a problem, so that copies of them cost as much as all others.

A parameter becomes a node that only a free option on its device makes. A result that the caller wants on a device
becomes a node that only a free option on this device makes of the value. So a problem with ends is a problem, and its
proofs are proofs; the state of the search tells where each parameter is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..index_set import first_n, index_set
from .problem import Option, Problem, Solution, Transition

END = "view"
"""The backend of the options for parameters and results, which are not kernels."""


@dataclass(frozen=True, slots=True)
class ProblemWithEnds:
    """A problem between its parameters and results."""

    problem: Problem
    """Nodes: the parameters, those of the inner problem, the results with a device."""
    inner: Problem
    parameters: int
    """How many nodes come before those of the inner problem."""

    def inside(self, solution: Solution) -> Solution:
        """A solution of the problem, with the options and nodes of the inner one; its seconds have the copies."""
        by_id = {option.id: option for option in self.inner.options}
        chosen = tuple(by_id[option.id] for option in solution.chosen if option.id in by_id)
        left = solution.left_behind >> self.parameters & first_n(len(self.inner))
        return replace(solution, chosen=chosen, left_behind=left)


def with_ends(
    inner: Problem,
    reads: Sequence[Sequence[int]],
    parameters: Sequence[str],
    results: Mapping[int, str],
    copies: Mapping[tuple[str, str], Sequence[float]],
    first_id: int = 0,
) -> ProblemWithEnds:
    """``inner`` between its parameters and results.

    ``reads``: for each node the numbers of the parameters that it reads. ``parameters``: the device of each.
    ``results``: the device on which the caller wants the value of a node. ``copies``: by devices, the seconds of a
    copy of each parameter; the cost of a copy of a result is in ``inner.transitions``. Ids of new options are
    ``first_id`` or more, and larger than those of the inner problem.
    """
    before, count, wanted = len(parameters), len(inner), sorted(results)
    inputs = [((), device) for device in parameters]
    outputs = [((before + value,), results[value]) for value in wanted]
    nodes = [tuple(before + source for source in sources) for sources in inner.sources]
    sources = [(*sorted(read), *own) for read, own in zip(reads, nodes, strict=True)]
    first = max([first_id, *(option.id + 1 for option in inner.options)])
    places = [*range(before), *range(before + count, before + count + len(wanted))]
    ends = [
        Option(first + number, 1 << place, 0.0, backend=END, device=device)
        for number, (place, (_, device)) in enumerate(zip(places, (*inputs, *outputs), strict=True))
    ]
    own = [replace(o, inside=o.inside << before, hidden=o.hidden << before) for o in inner.options]
    problem = replace(
        inner,
        sources=(*(() for _ in inputs), *sources, *(read for read, _ in outputs)),
        free=inner.free << before,
        options=(*own, *ends),
        results=(inner.results & ~index_set(wanted)) << before,
        transitions=_with_parameters(inner, before, len(wanted), copies),
        launches={**inner.launches, END: 0.0},
    )
    return ProblemWithEnds(problem, inner, before)


def _with_parameters(
    inner: Problem, before: int, after: int, copies: Mapping[tuple[str, str], Sequence[float]]
) -> dict[tuple[str, str], Transition]:
    """The transitions by value, with the ``before`` parameters in front and nothing for the ``after`` results."""
    found: dict[tuple[str, str], Transition] = {}
    for pair in dict.fromkeys([*inner.transitions, *copies]):
        of_values = inner.transitions.get(pair, 0.0)
        values = of_values if isinstance(of_values, tuple) else (of_values,) * len(inner)
        found[pair] = (*copies.get(pair, (0.0,) * before), *values, *((0.0,) * after))
    return found
