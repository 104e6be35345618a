"""Rules that wrap other rules: choice, validity, labels, callable kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..graph import DataflowGraph, IndexSet, Limits, Nested, members
from .base import Declined, Found, Rule
from .tree import Printed


@dataclass(frozen=True, slots=True)
class Union(Printed):
    """The proposals of all the rules, one rule after the other."""

    rules: tuple[Rule, ...]

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        for rule in self.rules:
            yield from rule.apply(graph)


@dataclass(frozen=True, slots=True)
class OnlyValid(Printed):
    """The proposals of ``rule`` that are valid within ``limits``; the others are declined at their last node."""

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
    """Each proposal of ``rule`` as one part named ``label``, which stays a function inside every larger kernel.

    The part replaces those that the proposal had: the outermost label counts.
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
    """The proposals of ``rule`` that make sense as kernels, each once.

    A proposal of views, tuples and projections alone is declined: the VM evaluates these for free.
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
