"""Verdicts and costs in words."""

from __future__ import annotations

from ..plan.costs import EXPECTED, PACKED
from ..plan.explanation import ExplainedCandidate, ExplainedCost, ExplainedKernel, Explanation, Verdict
from ..plan.memory import PlanMemory
from .cells import counted, duration, plus_minus, size


def chances(candidate: ExplainedCandidate) -> str:
    """What must change so that a measured candidate is chosen."""
    if candidate.verdict is Verdict.NO_PLAN:
        return "fits into no plan"
    if candidate.regret is None or candidate.saved is None:
        return ""
    if candidate.regret < 0:
        return f"a plan with it is {duration(-candidate.regret)} cheaper, but was not found"
    if not candidate.exact and not candidate.regret:
        return "no plan with it is cheaper; how much more it would cost was not searched"
    if not candidate.regret:
        return "equally cheap"
    least = "" if candidate.exact else "at least "
    if candidate.saved >= 1:
        return "cannot win even at no cost"
    noise = ", a tie as far as the measurements tell" if candidate.within_noise else ""
    return f"would win if {least}{percent(candidate.saved)} faster{noise}"


def memory_text(memory: PlanMemory) -> str:
    """``peak memory 97.5 MB at conv2d_3 (weights 89.1 MB, values 8.03 MB, temporaries 401 kB)``, and what is not in it.

    With several devices or scopes the parts of the largest peak are given, and then the peaks of the others.
    """
    space = memory.largest
    if space is None or not memory.kernels:
        return "peak memory: no kernel runs"
    number = space.curve.index(space.peak)
    parts = [("weights", space.weights), ("values", space.live[number])]
    parts.append(("temporaries", space.peak - space.weights - space.live[number]))
    shown = ", ".join(f"{name} {size(nbytes)}" for name, nbytes in parts if nbytes)
    where = f" on {space.device}" if len(memory.spaces) > 1 else ""
    others = [f"{each.device} {each.scope} {size(each.peak)}" for each in memory.spaces if each is not space]
    unknown = f"{counted(memory.unknown, 'value')} of unknown size not counted" if memory.unknown else ""
    hidden = f"the memory of {' and '.join(memory.runtimes)} not counted" if memory.runtimes else ""
    whole = f"peak memory {size(space.peak)}{where} at {memory.at} ({shown})"
    return "; ".join(text for text in (whole, *others, unknown, hidden) if text)


def sentence(text: str) -> str:
    """``text`` with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def encodable(name: str) -> str:
    """The name of a file with escapes for bytes that are not text: ``mod\\udce8.onnx``."""
    return name.encode(errors="backslashreplace").decode()


def percent(part: float) -> str:
    """``7.3%``; at least ``<0.1%``, and ``37x`` instead of large percentages."""
    if part >= 10:
        return f"{part:.0f}x"
    return "<0.1%" if 0 < part < 0.001 else f"{part:.1%}"


def costed(cost: ExplainedCost) -> str:
    """``123 us (118 us to 130 us)``, or the reason why there is no cost; for a packed cost also its origin."""
    if cost.seconds is None:
        return cost.reason
    if cost.origin == EXPECTED:
        return f"{duration(cost.seconds)}, expected, not measured"
    if cost.low == cost.high:
        return duration(cost.seconds)
    origin = ", from a pack" if cost.origin == PACKED else ""
    return f"{duration(cost.seconds)} ({duration(cost.low)} to {duration(cost.high)}{origin})"


def tie_text(explanation: Explanation, kernel: ExplainedKernel) -> str:
    """``tie with tvm conv2d (lv3), 41.2 us +- 0.9 us against 41.0 us +- 1.1 us``; empty where there is no tie."""
    if not kernel.ties:
        return ""
    own = noisy(explanation.cost(explanation.by_id[kernel.candidate]))
    tied: list[str] = []
    for ids in kernel.ties[:2]:
        parts = [explanation.by_id[id_] for id_ in ids]
        names = " and ".join(titled(explanation, part) for part in parts)
        costs = " and ".join(noisy(explanation.cost(part)) for part in parts)
        tied.append(f"{names}, {own} against {costs}")
    more = f" and {len(kernel.ties) - 2} more" if len(kernel.ties) > 2 else ""
    return f"tie with {'; with '.join(tied)}{more}"


def noisy(cost: ExplainedCost) -> str:
    """``41.2 us +- 0.9 us``."""
    return "unknown" if cost.seconds is None else plus_minus(cost.seconds, cost.low, cost.high)


def titled(explanation: Explanation, candidate: ExplainedCandidate) -> str:
    """``onednn conv2d+relu (lv3, lv4)``."""
    return f"{candidate.backend} {candidate.label} ({some(explanation, candidate.bindings)})"


def some(explanation: Explanation, indexes: tuple[int, ...], most: int = 6) -> str:
    """The names of these bindings; only some of them if there are many."""
    if len(indexes) <= most:
        return explanation.names(indexes)
    head = explanation.names(indexes[: most - 2])
    return f"{head}, ... {explanation.bindings[indexes[-1]].name}: {len(indexes)} bindings"


def why_it_won(explanation: Explanation, kernel: ExplainedKernel) -> str:
    """The rival of a kernel, the margin of the kernel, and how much more the kernel may cost; or what it ties with."""
    if kernel.ties:
        policy = "fewer transitions, fewer kernels, then the preferred backend decide"
        return f"{tie_text(explanation, kernel)}: {policy}"
    if kernel.margin is None:
        return "no other candidate for all of its bindings is in a plan"
    if kernel.runner_up is None:
        return f"the best plan without it leaves its bindings behind and costs {duration(kernel.margin)} more"
    rival = explanation.by_id[kernel.runner_up]
    instead = titled(explanation, rival)
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
    noise = " (within the noise of the measurements)" if rival.within_noise else ""
    return f"the best plan without it has {instead} and costs {least}{duration(kernel.margin)} more{noise}{slack}"


def proof_text(explanation: Explanation) -> str:
    """Whether the plan is proved to be the cheapest, and by which search."""
    proof = explanation.proof
    without_cost = sum(not explanation.bindings[index].host for index in explanation.left_behind)
    besides = f" (besides {counted(without_cost, 'binding')} without a cost)" if without_cost else ""
    over = (
        f", {duration(proof.tie_seconds)} of it by ties that the policy has settled"
        if proof.tie_seconds
        else ""
    )
    cost = f"the whole plan costs {duration(proof.seconds)}{besides}{over}"
    if proof.proved:
        return f"{cost}, and no valid plan is cheaper{' by more than ties' if over else ''} ({proof.algorithm} search)"
    return f"{cost}, {unproved_text(proof.gap, proof.unproved)} ({proof.algorithm} search)"


def unproved_text(gap: float, unproved: float) -> str:
    """What is known of a plan that is not proved: the ``gap`` of the search, and the gap of the proof."""
    if gap > 1e-9:
        return f"not proved: a plan up to {percent(gap)} cheaper may exist"
    return f"the search found no cheaper plan; it is proved that none is cheaper by more than {percent(unproved)}"


def left_text(explanation: Explanation, index: int) -> str:
    """Why a binding is in no kernel."""
    from ..graph.sub_graph import short_name  # needs TVM; other sentences do not

    binding = explanation.bindings[index]
    why = (
        "the VM evaluates it for free"
        if binding.host
        else "no backend has a cost for it, TVM compiles it as it is"
    )
    return f"{binding.name} ({short_name(binding.op)}) is in no kernel: {why}"
