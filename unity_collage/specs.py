"""PartitionSpec: which rule proposes kernels of which backend for which target."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tvm.target import Target

from .backends import registry
from .backends.base import Backend
from .backends.options import name_of
from .errors import CollageError
from .graph import DataflowGraph, index_set, members
from .index_set import first_inside
from .rules import Declined, Found, Rule
from .target import device_target, device_text, fields_of, libs_of, why_not_refined


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """``rule`` proposes kernels of ``backend`` for the nodes that run on ``target``. Specs compare by value.

    With several targets the rule is asked once, with the first of them in scope. Its kernels may run on all of them.
    """

    name: str
    target: Target | Sequence[Target] = field(compare=False)
    rule: Rule
    backend: str
    """The name of a backend, or of a code generator ``relax.ext.<name>`` in TVM."""
    _fields: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.targets:
            raise CollageError(f"the partition spec {self.name!r} names no target")
        object.__setattr__(self, "_fields", json.dumps([*map(fields_of, self.targets)], sort_keys=True))

    @property
    def targets(self) -> tuple[Target, ...]:
        """All targets of the spec."""
        return (self.target,) if isinstance(self.target, Target) else tuple(self.target)

    def apply(self, graph: DataflowGraph, current: Target) -> Iterator[Found | Declined]:
        """What the rule proposes and declines with the spec's first target in scope.

        A node runs on the target of its virtual device, or on ``current``. A proposal is declined if a node runs on a
        target that no target of the spec refines. It is also declined if its nodes have several virtual devices.
        """
        with self.targets[0]:
            answers = list(self.rule.apply(graph))
        reasons = self._reasons(graph, current)
        elsewhere = index_set(reasons)
        places = [device_text(node.var.ty) for node in graph.nodes]
        for answer in answers:
            if isinstance(answer, Found) and answer.inside & elsewhere:
                first = first_inside(answer.inside & elsewhere)
                yield Declined(first, answer.rule, reasons[first], "target")
            elif isinstance(answer, Found) and (reason := _why_not_together(graph, answer, places)):
                yield Declined(answer.inside.bit_length() - 1, answer.rule, reason, "device")
            else:
                yield answer

    def _reasons(self, graph: DataflowGraph, current: Target) -> dict[int, str]:
        """The nodes that run on another target, by index, with the reason why the spec may not take them."""
        by_target: dict[str, str | None] = {}
        reasons: dict[int, str] = {}
        for node in graph.nodes:
            own = device_target(node.var.ty)
            required = own or current
            if str(required) not in by_target:
                found = [why_not_refined(target, required) for target in self.targets]
                by_target[str(required)] = None if None in found else found[0]
            reason = by_target[str(required)] or (own and self._why_not_named(own))
            if reason is not None:
                reasons[node.index] = reason
        return reasons

    def _why_not_named(self, target: Target) -> str | None:
        """Why the target of a virtual device takes no kernels of the backend, or None."""
        libs = libs_of(target)
        return (
            f"its device takes kernels of {', '.join(libs)} only"
            if libs and self.backend not in map(name_of, libs)
            else None
        )


def _why_not_together(graph: DataflowGraph, proposal: Found, places: Sequence[str | None]) -> str | None:
    """Why the nodes of a proposal are not one kernel: two of them are on different virtual devices; else None."""
    found: dict[str, int] = {}
    for index in members(proposal.inside):
        place = places[index]
        if place is not None:
            found.setdefault(place, index)
    if len(found) < 2:
        return None
    (one, first), (other, second), *_ = found.items()
    names = graph.nodes[first].var.name, graph.nodes[second].var.name
    return f"a kernel runs on one device, and {names[0]} is on {one}, {names[1]} on {other}"


def gathered(
    backends: Iterable[Backend], given: Sequence[PartitionSpec], graph: DataflowGraph, current: Target
) -> tuple[PartitionSpec, ...]:
    """The specs for one function: those ``given`` by the user, then one for each backend and target of the function.

    Raises CollageError if two specs have one name, or if ``given`` names a backend that cannot be used.
    """
    found: dict[str, str] = {}
    for spec in given:
        if spec.name in found:
            raise _conflict(spec.name, found[spec.name], "given by the caller too")
        found[spec.name] = "given by the caller"
        registry.usable(spec.backend)
    specs = list(given)
    for backend in backends:
        if backend.name in found:
            raise _conflict(backend.name, found[backend.name], f"that of backend {backend.name}")
        for target in targets_of(graph, current):
            specs.append(PartitionSpec(backend.name, target, backend.rule(target), backend.name))
    return tuple(specs)


def targets_of(graph: DataflowGraph, current: Target) -> list[Target]:
    """``current``, then the targets of the same kind that virtual devices of the function name."""
    found = {json.dumps(fields_of(current)): current}
    for node in graph.nodes:
        target = device_target(node.var.ty)
        if target is not None and target.kind.name == current.kind.name:
            found.setdefault(json.dumps(fields_of(target)), target)
    return list(found.values())


def _conflict(name: str, first: str, second: str) -> CollageError:
    return CollageError(f"two partition specs are named {name!r}: one {first}, one {second}")
