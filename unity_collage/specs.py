"""PartitionSpec: which rule proposes kernels of which backend for which target."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tvm.target import Target

from .backends import registry
from .backends.base import Backend
from .errors import CollageError
from .graph import DataflowGraph, index_set
from .index_set import first_inside
from .rules import Declined, Found, Rule
from .target import device_target, fields_of, why_not_refined


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """``rule`` proposes kernels of ``backend`` for the nodes that run on ``target``. Specs compare by value."""

    name: str
    target: Target = field(compare=False)
    rule: Rule
    backend: str
    """The name of a backend, or of a code generator ``relax.ext.<name>`` in TVM."""
    _fields: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_fields", json.dumps(fields_of(self.target), sort_keys=True))

    def apply(self, graph: DataflowGraph, current: Target) -> Iterator[Found | Declined]:
        """What the rule proposes and declines with the spec's target in scope.

        A node runs on the target of its virtual device, or on ``current``. Proposals with a node that runs on a target
        which the spec's target does not refine are declined.
        """
        with self.target:
            answers = list(self.rule.apply(graph))
        reasons = self._reasons(graph, current)
        elsewhere = index_set(reasons)
        for answer in answers:
            if isinstance(answer, Found) and answer.inside & elsewhere:
                first = first_inside(answer.inside & elsewhere)
                yield Declined(first, answer.rule, reasons[first], "target")
            else:
                yield answer

    def _reasons(self, graph: DataflowGraph, current: Target) -> dict[int, str]:
        """The nodes that run on another target, by index, with the reason why the spec may not take them."""
        by_target: dict[str, str | None] = {}
        reasons: dict[int, str] = {}
        for node in graph.nodes:
            required = device_target(node.var.ty) or current
            if str(required) not in by_target:
                by_target[str(required)] = why_not_refined(self.target, required)
            reason = by_target[str(required)]
            if reason is not None:
                reasons[node.index] = reason
        return reasons


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
