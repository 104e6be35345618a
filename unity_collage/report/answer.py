"""Why this kernel, why not that one: the answer for one binding, in five or six lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..graph.sub_graph import short_name
from ..plan.explanation import ExplainedCandidate, ExplainedKernel, Explanation, Verdict
from .lookup import Place, find
from .words import chances, costed, left_text, percent, proof_text, some, why_it_won

SHOWN = 3
"""So many rivals and refusals of each sort are named; the report as JSON or HTML has all."""


def answer(explanations: Mapping[str, Explanation], name: str, meanings: Iterable[str] = ()) -> list[str]:
    """Who computes the binding ``name``, why, who else bid, who did not, and what is proved: a line each.

    ``name`` is a binding, a kernel's function, or an operator or kernel label that occurs once, if need be with the
    function before it: ``main:lv3``. ``meanings`` are names that may be meant where there is no such one, the best
    first. Raises CollageError with one line that says which names are closest. A sixth line says why a rewrite rule
    left the binding or its chain, if one looked at them.
    """
    place, is_own = find(explanations, name, meanings)
    explanation = explanations[place.function]
    kernel = _kernel_of(explanation, place.index)
    what, why = _decision(explanation, place, kernel)
    bids = [bid for bid in explanation.candidates if place.index in bid.bindings]
    return [
        what if is_own else f"{name}, now {what}",
        f"Why: {why}.",
        f"Why not: {_rivals(explanation, bids)}.",
        f"Never in: {_never(explanation, bids, place.index)}.",
        f"Proof: {proof_text(explanation)}.",
        *_not_rewritten(explanation, place.index),
    ]


def _kernel_of(explanation: Explanation, index: int) -> ExplainedKernel | None:
    """The kernel that writes the binding's value, or one that computes it for itself."""
    found = [k for k in explanation.kernels if index in explanation.by_id[k.candidate].bindings]
    return min(found, key=lambda k: index in explanation.by_id[k.candidate].hidden, default=None)


def _decision(explanation: Explanation, place: Place, kernel: ExplainedKernel | None) -> tuple[str, str]:
    if kernel is None:
        what = left_text(explanation, place.index)
        return what, "what is in no kernel has no cost and pays no launch"
    binding, bid = explanation.bindings[place.index], explanation.by_id[kernel.candidate]
    share = explanation.seconds(kernel) / explanation.proof.seconds
    what = (
        f"{binding.name} ({short_name(binding.op)}) is in {bid.backend} {bid.label} "
        f"({some(explanation, bid.bindings)}): {costed(explanation.cost(bid))}, {percent(share)} of {place.function}"
    )
    return what, why_it_won(explanation, kernel)


def _rivals(explanation: Explanation, bids: Iterable[ExplainedCandidate]) -> str:
    """The other measured candidates for a binding, the least regret first, equal ones once."""
    others = (bid for bid in bids if bid.verdict is not Verdict.CHOSEN)
    rivals = [bid for bid in others if explanation.cost(bid).seconds is not None]
    rivals.sort(key=lambda bid: (bid.regret is None, bid.regret or 0.0))
    texts = [f"{b.backend} {b.label} {costed(explanation.cost(b))} {chances(b)}" for b in rivals]
    return _first(list(dict.fromkeys(texts)), "nobody else has a cost for it")


def _never(explanation: Explanation, bids: Iterable[ExplainedCandidate], index: int) -> str:
    """Who has no cost and who declined, with the reasons."""
    texts = [
        f"{bid.backend} {bid.label}: {bid.verdict.value}, {explanation.cost(bid).reason}"
        for bid in bids
        if bid.verdict in (Verdict.NO_COST, Verdict.NOT_MEASURED)
    ]
    texts += [
        f"{refusal.backend} declined ({refusal.condition}): {refusal.reason}"
        for refusal in explanation.declined
        if index in refusal.bindings
    ]
    return _first(list(dict.fromkeys(texts)), "nobody declined it, and no bid is without a cost")


def _not_rewritten(explanation: Explanation, index: int) -> list[str]:
    """Which rewrite rules looked at a binding and why they left it, then those that looked at others of its chain."""
    near = [miss for miss in explanation.near_misses if index in miss.bindings]
    near.sort(key=lambda miss: miss.bindings[0] != index)
    texts = []
    for miss in near:
        at = "it" if miss.bindings[0] == index else explanation.bindings[miss.bindings[0]].name
        texts.append(f"{miss.rule} looked at {at}: {miss.reason}")
    return [f"Not rewritten: {_first(texts, '')}."] if texts else []


def _first(texts: Sequence[str], none: str) -> str:
    more = f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return "; ".join(texts[:SHOWN]) + more if texts else none
