"""Rules around rules: choice, validity, labels, kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..graph import DataflowGraph, IndexSet, Limits, Nested, members
from .base import Declined, Found, Rule
from .tree import Printed


@dataclass(frozen=True, slots=True)
class Union(Printed):
    """What any of the rules proposes."""

    rules: tuple[Rule, ...]

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        for rule in self.rules:
            yield from rule.apply(graph)


@dataclass(frozen=True, slots=True)
class OnlyValid(Printed):
    """What ``rule`` proposes, as far as it is within ``limits``; the rest is declined at its last node."""

    rule: Rule
    limits: Limits = field(default_factory=Limits)

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        for proposal in self.rule.apply(graph):
            if isinstance(proposal, Declined):
                yield proposal
                continue
            reason = proposal.sub_graph(graph).why_not_valid(self.limits)
            if reason is None:
                yield proposal
            else:
                last = proposal.inside.bit_length() - 1
                yield Declined(last, proposal.rule, f"{proposal.label}: {reason}", "validity")


@dataclass(frozen=True, slots=True)
class Composite(Printed):
    """What ``rule`` proposes, each as one part named ``label``, which stays a function inside every larger kernel.

    Parts that a proposal had dissolve: the outermost label counts.
    """

    label: str
    rule: Rule

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        for proposal in self.rule.apply(graph):
            if isinstance(proposal, Found):
                proposal = replace(proposal, label=self.label, nested=(Nested(proposal.inside, self.label),))
            yield proposal


@dataclass(frozen=True, slots=True)
class Primitive(Printed):
    """What ``rule`` proposes as kernels that can be called: each once, and something for a kernel to do.

    Declined is what consists of views, tuples and projections only: the VM evaluates those for nothing.
    """

    rule: Rule

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        seen: set[tuple[IndexSet, IndexSet, tuple[Nested, ...]]] = set()
        for proposal in self.rule.apply(graph):
            if isinstance(proposal, Declined):
                yield proposal
                continue
            key = (proposal.inside, proposal.hidden, proposal.nested)
            if key in seen:
                continue
            seen.add(key)
            if all(graph.nodes[i].is_host for i in members(proposal.inside)):
                last = proposal.inside.bit_length() - 1
                yield Declined(
                    last,
                    proposal.rule,
                    f"{proposal.label}: no kernel, the VM evaluates it for free",
                    "validity",
                )
            else:
                yield proposal
