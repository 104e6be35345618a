"""Checks whether a plan is what it claims to be, for readers who doubt the search."""

from __future__ import annotations

from ..search import Problem
from ..search.certificate import why_not
from ..search.tie_claim import why_not_ties
from .plan import Plan


def why_plan_does_not_hold(problem: Problem, plan: Plan) -> str | None:
    """What is wrong with the certificate of ``plan`` as an answer to ``problem``, or None.

    The checker shares no code with the searches. Where the policy for ties was applied, it also checks that the plan
    differs from the certified one only by ties.
    """
    if plan.certificate is None:
        return "the plan has no certificate: it was given, not searched"
    reason = why_not(problem, plan.certificate)
    if reason is not None or plan.tie_policy is None:
        return reason
    return why_not_ties(problem, plan.certificate, plan.tie_policy)
