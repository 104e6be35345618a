"""Finds the candidates that the kernels of a given plan name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice

from ..annotations import CANDIDATES, DECLINED
from ..backends.merging import MOST_PARTS, merged_candidates
from ..backends.registry import get
from ..errors import CollageError, with_names
from ..graph import DataflowGraph
from ..index_set import EMPTY, IndexSet, first_inside, index_set, members, size
from ..plan.candidate import VIEW, Candidate
from ..plan.given import GivenKernel
from ..plan.names import binding_names
from ..plan.problem import possible_without_kernels

_MOST_COVERS, _MOST_STEPS = 32, 2_000
"""How many ways to make a merged kernel of candidates are tried, and how many steps the search for them takes."""


def chosen_candidates(
    graph: DataflowGraph, kernels: Sequence[GivenKernel], where: str
) -> tuple[Candidate, ...]:
    """The candidate of each kernel, and the views of what is left.

    Raises CollageError for a kernel that is not a candidate, with ``where`` and the number of the kernel. Raises it
    for a binding that has a candidate but no kernel, too: its cost would not be known.
    """
    chosen = named_candidates(graph, kernels, where)
    covered = index_set(index for candidate in chosen for index in candidate.indexes)
    views = views_beside(graph, covered)
    covered |= index_set(index for view in views for index in view.indexes)
    _check_rest(graph, CANDIDATES.read(graph.func), covered, where, binding_names(graph))
    return (*chosen, *views)


def named_candidates(
    graph: DataflowGraph, kernels: Sequence[GivenKernel], where: str
) -> tuple[Candidate, ...]:
    """The candidate of each kernel; raises CollageError, with ``where`` and its number, for one that is none."""
    names = binding_names(graph)
    index = {name: number for number, name in enumerate(names)}
    candidates = CANDIDATES.read(graph.func)
    chosen: list[Candidate] = []
    for number, kernel in enumerate(kernels, 1):
        place = f"{where}, kernel {number}"
        if unknown := [name for name in kernel.bindings if name not in index]:
            raise CollageError(
                with_names(f"{place}: the model has no binding {unknown[0]}", unknown[0], names, 0)
            )
        inside = index_set(index[name] for name in kernel.bindings)
        found = _candidate(graph, candidates, kernel, inside, place, names)
        chosen.append(found if kernel.threads is None else replace(found, threads=kernel.threads))
    return tuple(chosen)


def views_beside(graph: DataflowGraph, covered: IndexSet) -> tuple[Candidate, ...]:
    """The views of bindings that are not ``covered``, and that no other view has."""
    found: list[Candidate] = []
    for view in CANDIDATES.read(graph.func):
        inside = index_set(view.indexes)
        if view.backend == VIEW and not inside & covered:
            found.append(view)
            covered |= inside
    return tuple(found)


def _candidate(
    graph: DataflowGraph,
    candidates: Sequence[Candidate],
    kernel: GivenKernel,
    inside: IndexSet,
    place: str,
    names: Sequence[str],
) -> Candidate:
    """The candidate for ``inside``; of several the one that writes all values, as our own plans prefer it."""
    own = [candidate for candidate in candidates if candidate.backend == kernel.backend]
    same = [candidate for candidate in own if index_set(candidate.indexes) == inside]
    same = same or list(_merged(graph, own, inside))
    labelled = [candidate for candidate in same if kernel.label in ("", candidate.label, candidate.title)]
    if labelled:
        return min(labelled, key=lambda candidate: len(candidate.hidden))
    text = ", ".join(kernel.bindings[:4]) + (", ..." if len(kernel.bindings) > 4 else "")
    if same:
        raise CollageError(f"{place}: {kernel.backend} makes {same[0].label} of {text}, not {kernel.label}")
    raise CollageError(f"{place}: {_why_none(graph, own, kernel.backend, inside, text, names)}")


def _merged(graph: DataflowGraph, own: Sequence[Candidate], inside: IndexSet) -> Iterator[Candidate]:
    """Several candidates of a backend in one call, where together they are ``inside``; larger parts come first."""
    able = [each for each in own if each.backend != VIEW and get(each.backend).merges]
    for parts in islice(_covers(able, inside), _MOST_COVERS):
        whole = _in_one_call(graph, parts)
        if whole is not None:
            yield whole


def _covers(candidates: Sequence[Candidate], inside: IndexSet) -> Iterator[tuple[Candidate, ...]]:
    """Up to ``MOST_PARTS`` of the ``candidates`` without a common node that together are ``inside``."""
    fitting = [(own, each) for each in candidates if not (own := index_set(each.indexes)) & ~inside]
    fitting.sort(key=lambda pair: size(pair[0]))
    waiting: list[tuple[tuple[Candidate, ...], IndexSet]] = [((), inside)]
    for _ in range(_MOST_STEPS):
        if not waiting:
            return
        parts, rest = waiting.pop()
        if not rest:
            yield parts
        elif len(parts) < MOST_PARTS:
            first = first_inside(rest)
            waiting += [
                ((*parts, each), rest & ~own) for own, each in fitting if own >> first & 1 and not own & ~rest
            ]


def _in_one_call(graph: DataflowGraph, parts: Sequence[Candidate]) -> Candidate | None:
    """The ``parts`` merged one after the other, or None if some do not touch or make no valid kernel."""
    left = list(parts)
    number = 1 + max(part.id for part in parts)
    while len(left) > 1:
        pairs = ((pair, merged_candidates(graph, pair, number)) for pair in combinations(left, 2))
        pair, merged = next(((pair, merged) for pair, merged in pairs if merged), ((), []))
        if not merged:
            return None
        left = [*(part for part in left if part not in pair), merged[0]]
        number += 1
    return left[0]


def _why_none(
    graph: DataflowGraph,
    own: Sequence[Candidate],
    backend: str,
    inside: IndexSet,
    text: str,
    names: Sequence[str],
) -> str:
    if not own:
        return f"no backend named {backend} has candidates here"
    refused = DECLINED.read(graph.func) if DECLINED.on(graph.func) else ()
    reasons = [
        f"{names[each.index]}: {each.reason}"
        for each in refused
        if each.backend == backend and inside >> each.index & 1
    ]
    return f"{backend} makes no kernel of {text}" + (f" ({reasons[0]})" if reasons else "")


def _check_rest(
    graph: DataflowGraph, candidates: Sequence[Candidate], covered: IndexSet, where: str, names: Sequence[str]
) -> None:
    """Raises CollageError for a binding without a kernel that is not free."""
    with_candidates = EMPTY
    for candidate in candidates:
        with_candidates |= index_set(candidate.indexes)
    free = possible_without_kernels(graph) & ~with_candidates
    free |= index_set(node.index for node in graph.nodes if node.is_host)
    for number in members(index_set(range(len(graph.nodes))) & ~covered & ~free):
        op = graph.nodes[number].label
        raise CollageError(
            f"{where}: {names[number]} ({op}) is in no kernel, so its cost is not known: add one with it"
        )
