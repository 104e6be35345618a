"""Finds the binding that a name means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..graph.sub_graph import short_name
from ..inspection.nodes import several_nodes, unknown_node
from ..plan.explanation import Explanation


@dataclass(frozen=True, slots=True)
class Place:
    """One binding of one function."""

    function: str
    index: int


Known = dict[str, list[Place]]


def find(
    explanations: Mapping[str, Explanation],
    name: str,
    meanings: Iterable[str] = (),
    others: Sequence[str] = (),
) -> tuple[Place, bool]:
    """The binding that ``name`` means, and whether it was found by ``name`` rather than by one of its ``meanings``.

    Raises CollageError in one line, with all bindings where there are several, or the closest names, also among
    ``others``, where there is none.
    """
    known = _known(explanations)
    if name in known:
        return _single(explanations, name, known[name]), True
    for meaning in meanings:
        if len(known.get(meaning, ())) == 1:
            return known[meaning][0], False
    raise unknown_node(name, [*known, *others])


def _single(explanations: Mapping[str, Explanation], name: str, places: list[Place]) -> Place:
    if len(places) == 1:
        return places[0]
    several = len({place.function for place in places}) > 1
    names = [explanations[place.function].bindings[place.index].name for place in places]
    shown = [f"{place.function}:{own}" if several else own for place, own in zip(places, names, strict=True)]
    raise several_nodes(name, shown)


def _known(explanations: Mapping[str, Explanation]) -> Known:
    """All names and what they mean. The name of a binding takes precedence over those of kernels and operators."""
    own: dict[str, dict[Place, None]] = {}
    shared: dict[str, dict[Place, None]] = {}
    for function, explanation in explanations.items():
        for index, binding in enumerate(explanation.bindings):
            place = Place(function, index)
            for name in (binding.name, f"{function}:{binding.name}"):
                own.setdefault(name, {})[place] = None
            for name in (binding.op, short_name(binding.op)):
                shared.setdefault(name, {})[place] = None
        for name, place in _kernel_names(function, explanation):
            shared.setdefault(name, {})[place] = None
    return {name: list(places) for name, places in (shared | own).items()}


def _kernel_names(function: str, explanation: Explanation) -> Iterator[tuple[str, Place]]:
    """The function and the label of each kernel; both mean its last binding."""
    for kernel in explanation.kernels:
        own = explanation.by_id[kernel.candidate]
        place = Place(function, own.bindings[-1])
        if kernel.function:
            yield kernel.function, place
        if len(own.bindings) > 1:  # the label of a single operator is the name of the operator
            yield own.label, place
