"""Answers why a binding is in its kernel and in no other one, in five or six lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..graph.sub_graph import short_name
from ..plan.explanation import ExplainedCandidate, ExplainedKernel, Explanation, Verdict
from .lookup import Place, find
from .words import chances, costed, left_text, percent, proof_text, some, why_it_won

SHOWN = 3
"""How many rivals and refusals are named in a line; the report as JSON or HTML has all."""


def answer(
    explanations: Mapping[str, Explanation],
    name: str,
    meanings: Iterable[str] = (),
    others: Sequence[str] = (),
) -> list[str]:
    """A line each: the kernel of the binding ``name``, why it won, its rivals, refusals, and what is proved.

    ``name`` is a binding, a kernel's function, or an operator or kernel label that occurs once; the function may come
    before it: ``main:lv3``. ``meanings``: other names to try if nothing is called ``name``, the best first.
    ``others``: more names that may have been meant. A rewrite rule may have matched the beginning of its form at the
    binding or its chain: then a sixth line says why it did not apply. Raises CollageError with the closest names in
    one line.
    """
    place, is_own = find(explanations, name, meanings, others)
    explanation = explanations[place.function]
    kernel = _kernel_of(explanation, place.index)
    what, why = _decision(explanation, place, kernel)
    candidates = [each for each in explanation.candidates if place.index in each.bindings]
    return [
        what if is_own else f"{name}, now {what}",
        f"Why: {why}.",
        f"Why not: {_rivals(explanation, candidates)}.",
        f"Never in: {_never(explanation, candidates, place.index)}.",
        f"Proof: {proof_text(explanation)}.",
        *_not_rewritten(explanation, place.index),
    ]


def _kernel_of(explanation: Explanation, index: int) -> ExplainedKernel | None:
    """The kernel that writes the binding's value, else one that computes it without writing it."""
    found = [k for k in explanation.kernels if index in explanation.by_id[k.candidate].bindings]
    return min(found, key=lambda k: index in explanation.by_id[k.candidate].hidden, default=None)


def _decision(explanation: Explanation, place: Place, kernel: ExplainedKernel | None) -> tuple[str, str]:
    if kernel is None:
        what = left_text(explanation, place.index)
        return what, "a binding in no kernel costs nothing"
    binding, own = explanation.bindings[place.index], explanation.by_id[kernel.candidate]
    whole = explanation.proof.seconds  # 0 where there are views only
    share = explanation.seconds(kernel) / whole if whole else 0.0
    what = (
        f"{binding.name} ({short_name(binding.op)}) is in {own.backend} {own.label} "
        f"({some(explanation, own.bindings)}): {costed(explanation.cost(own))}, {percent(share)} of {place.function}"
    )
    return what, why_it_won(explanation, kernel)


def _rivals(explanation: Explanation, candidates: Iterable[ExplainedCandidate]) -> str:
    """The other measured candidates for a binding, the least regret first, equal ones once."""
    others = (each for each in candidates if each.verdict is not Verdict.CHOSEN)
    rivals = [each for each in others if explanation.cost(each).seconds is not None]
    rivals.sort(key=lambda rival: (rival.regret is None, rival.regret or 0.0))
    texts = [f"{r.backend} {r.label} {costed(explanation.cost(r))} {chances(r)}" for r in rivals]
    return _first(list(dict.fromkeys(texts)), "no other candidate has a cost for it")


def _never(explanation: Explanation, candidates: Iterable[ExplainedCandidate], index: int) -> str:
    """The candidates without a cost and the backends that declined, with their reasons."""
    texts = [
        f"{each.backend} {each.label}: {_without_cost(each, explanation.cost(each).reason)}"
        for each in candidates
        if each.verdict in (Verdict.NO_COST, Verdict.NOT_MEASURED)
    ]
    texts += [
        f"{refusal.backend} declined ({refusal.condition}): {refusal.reason}"
        for refusal in explanation.declined
        if index in refusal.bindings
    ]
    return _first(list(dict.fromkeys(texts)), "no backend declined it, and every candidate has a cost")


def _without_cost(candidate: ExplainedCandidate, reason: str) -> str:
    """Why a candidate has no cost; most reasons begin with the verdict."""
    verdict = candidate.verdict.value
    return reason if reason.startswith(verdict) else f"{verdict}, {reason}"


def _not_rewritten(explanation: Explanation, index: int) -> list[str]:
    """Why rewrite rules did not apply to a binding, then why they did not apply to others of its chain."""
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
