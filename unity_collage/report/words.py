"""Verdicts and costs in words."""

from __future__ import annotations

from ..graph.sub_graph import short_name
from ..plan.explanation import ExplainedCandidate, ExplainedCost, ExplainedKernel, Explanation, Verdict
from .text import duration, plus_minus


def chances(bid: ExplainedCandidate) -> str:
    """What would have to change for a measured candidate to be chosen here."""
    if bid.verdict is Verdict.NO_PLAN:
        return "fits into no plan"
    if bid.regret is None or bid.saved is None:
        return ""
    if bid.regret < 0:
        return f"a plan with it is {duration(-bid.regret)} cheaper, but was not found"
    if not bid.exact and not bid.regret:
        return "no cheaper plan has it, how much more expensive was not searched"
    if not bid.regret:
        return "equally cheap"
    least = "" if bid.exact else "at least "
    if bid.saved >= 1:
        return "cannot win even at no cost"
    noise = ", a tie as far as the measurements tell" if bid.within_noise else ""
    return f"would win if {least}{percent(bid.saved)} faster{noise}"


def sentence(text: str) -> str:
    """With a capital at its front and a full stop at its end."""
    return f"{text[:1].upper()}{text[1:]}."


def percent(part: float) -> str:
    """``7.3%``; never rounded to nothing, and ``37x`` where per cent mean little."""
    if part >= 10:
        return f"{part:.0f}x"
    return "<0.1%" if 0 < part < 0.001 else f"{part:.1%}"


def costed(cost: ExplainedCost) -> str:
    """``123 us (118 us to 130 us)``, or the reason why there is no cost."""
    if cost.seconds is None:
        return cost.reason
    if cost.low == cost.high:
        return duration(cost.seconds)
    return f"{duration(cost.seconds)} ({duration(cost.low)} to {duration(cost.high)})"


def tie_text(explanation: Explanation, kernel: ExplainedKernel) -> str:
    """``tie with tvm conv2d (lv3), 41.2 us +- 0.9 us against 41.0 us +- 1.1 us``; empty where there is none."""
    if not kernel.ties:
        return ""
    own = noisy(explanation.cost(explanation.by_id[kernel.candidate]))
    tied: list[str] = []
    for ids in kernel.ties[:2]:
        bids = [explanation.by_id[id_] for id_ in ids]
        names = " and ".join(titled(explanation, bid) for bid in bids)
        tied.append(f"{names}, {own} against {' and '.join(noisy(explanation.cost(bid)) for bid in bids)}")
    more = f" and {len(kernel.ties) - 2} more" if len(kernel.ties) > 2 else ""
    return f"tie with {'; with '.join(tied)}{more}"


def noisy(cost: ExplainedCost) -> str:
    """``41.2 us +- 0.9 us``."""
    return "unknown" if cost.seconds is None else plus_minus(cost.seconds, cost.low, cost.high)


def titled(explanation: Explanation, bid: ExplainedCandidate) -> str:
    """``onednn conv2d+relu (lv3, lv4)``."""
    return f"{bid.backend} {bid.label} ({some(explanation, bid.bindings)})"


def some(explanation: Explanation, indexes: tuple[int, ...], most: int = 6) -> str:
    """The names of these bindings, the first and the last few if there are many."""
    if len(indexes) <= most:
        return explanation.names(indexes)
    head = explanation.names(indexes[: most - 2])
    return f"{head}, ... {explanation.bindings[indexes[-1]].name}: {len(indexes)} bindings"


def why_it_won(explanation: Explanation, kernel: ExplainedKernel) -> str:
    """By how much, against whom, and how much more expensive the kernel may become; or whom it ties with."""
    if kernel.ties:
        policy = "fewer transitions, fewer kernels, then the preferred backend decide"
        return f"{tie_text(explanation, kernel)}: {policy}"
    if kernel.margin is None:
        return "no other candidate for all of its bindings is in a plan"
    if kernel.runner_up is None:
        return f"the best plan without it leaves its bindings behind and costs {duration(kernel.margin)} more"
    bid = explanation.by_id[kernel.runner_up]
    instead = titled(explanation, bid)
    if kernel.margin < 0:
        return f"a plan with {instead} instead is {duration(-kernel.margin)} cheaper, but the search did not find it"
    if not kernel.margin:
        return (
            f"a plan with {instead} instead is equally cheap"
            if kernel.exact
            else f"no plan without it is cheaper; how much more expensive {instead} would be was not searched"
        )
    least = "" if kernel.exact else "at least "
    seconds = explanation.seconds(kernel)
    slack = (
        f"; it keeps its place until it is {least}{percent(kernel.margin / seconds)} more expensive"
        if seconds
        else ""
    )
    noise = " (within the noise of the measurements)" if bid.within_noise else ""
    return f"the best plan without it has {instead} and costs {least}{duration(kernel.margin)} more{noise}{slack}"


def proof_text(explanation: Explanation) -> str:
    """Whether the plan is the cheapest, and what says so."""
    proof = explanation.proof
    without_cost = sum(not explanation.bindings[index].host for index in explanation.left_behind)
    besides = (
        f" (besides {without_cost} {'binding' if without_cost == 1 else 'bindings'} that nobody has a cost for)"
        if without_cost
        else ""
    )
    over = (
        f", {duration(proof.tie_seconds)} of it by ties that the policy has settled"
        if proof.tie_seconds
        else ""
    )
    cost = f"the whole plan costs {duration(proof.seconds)}{besides}{over}"
    if proof.proved:
        return f"{cost}, and no valid plan is cheaper{' by more than ties' if over else ''} ({proof.algorithm} search)"
    return (
        f"{cost}, not proved: a plan up to {percent(proof.gap)} cheaper may exist ({proof.algorithm} search)"
    )


def left_text(explanation: Explanation, index: int) -> str:
    """Why a binding is in no kernel."""
    binding = explanation.bindings[index]
    why = (
        "the VM evaluates it for free"
        if binding.host
        else "no backend has a cost for it, TVM compiles it as it is"
    )
    return f"{binding.name} ({short_name(binding.op)}) is in no kernel: {why}"
