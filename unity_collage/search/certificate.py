"""What a search claims, and an independent check of the claim.

The check follows the definition in ``problem`` and shares no code with the searches: it reads only the fields of the
problem. To trust a plan it is enough to read this file, :mod:`.validity`, :mod:`.proof`,
:mod:`.enumeration` and :mod:`.branches`. Proofs are about the problem :func:`at_least`, in which no cost is a guess.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import fsum

from ..index_set import members
from .branches import ProofBranch, branches_seconds, why_no_branches
from .enumeration import Enumeration, why_not_enumerated
from .problem import Option, Problem, Solution
from .proof import BoundProof, why_no_proof, why_wrong_transitions
from .validity import ROUNDING, launch, why_not_valid, why_wrong_cost


@dataclass(frozen=True, slots=True)
class Certificate:
    """A claim about one plan, as plain data: its ``dataclasses.asdict`` can be written as JSON."""

    chosen: tuple[int, ...]
    """Ids of the options, in an order in which they can run."""
    left_behind: tuple[int, ...]
    """Nodes."""
    seconds: float
    """Costs, launches and transitions together."""
    lower_bound: float
    """The claim of the search that no valid plan is cheaper; the proof may show less."""
    gap: float
    """The difference between the cost and the lower bound, as a part of the cost."""
    proved: bool
    """Whether the proof shows that no valid plan is cheaper, up to rounding."""
    algorithm: str
    proof: BoundProof | None = None
    """The best proof of one piece that was found, of the lower bound or of a lower one."""
    enumeration: Enumeration | None = None
    """A proof by enumeration, where that one does not reach."""
    branches: tuple[ProofBranch, ...] = ()
    """A proof by cases, where neither reaches; else empty."""
    proved_seconds: float = 0.0
    """The highest bound that these three prove."""

    @property
    def unproved(self) -> float:
        """The part of its cost by which another plan may be cheaper by what is proved."""
        if self.proved or not self.seconds:
            return 0.0
        return max(0.0, 1.0 - self.proved_seconds / self.seconds)


def at_least(problem: Problem) -> Problem:
    """``problem`` with guessed costs at their lower bounds: whatever they are, no plan costs less than it does here."""
    if all(option.least is None for option in problem.options):
        return problem
    return replace(problem, options=tuple(map(_at_least, problem.options)))


def _at_least(option: Option) -> Option:
    if option.least is None:
        return option
    return replace(option, seconds=min(option.seconds, option.least), low=None, high=None, least=None)


def certificate_of(
    problem: Problem,
    solution: Solution,
    proof: BoundProof | None = None,
    enumeration: Enumeration | None = None,
    branches: tuple[ProofBranch, ...] = (),
) -> Certificate:
    """The claim of ``solution`` with a proof."""
    claim = Certificate(
        chosen=tuple(option.id for option in solution.chosen),
        left_behind=tuple(members(solution.left_behind)),
        seconds=solution.seconds,
        lower_bound=solution.lower_bound,
        gap=solution.gap,
        proved=False,
        algorithm=solution.algorithm,
        proof=proof,
        enumeration=enumeration,
        branches=branches,
    )
    proved = _proved_seconds(at_least(problem), claim)
    reaches = _reaches(proved, solution.seconds - solution.tie_seconds)
    return replace(claim, proved_seconds=proved, proved=reaches)


def why_not(problem: Problem, certificate: Certificate) -> str | None:
    """The first error in the claim, or None."""
    by_id = {option.id: option for option in problem.options}
    for identity in certificate.chosen:
        if identity not in by_id:
            return f"option {identity} does not exist"
    chosen = [by_id[identity] for identity in certificate.chosen]
    return (
        why_unmeasured(chosen)
        or why_not_valid(problem, chosen, certificate.left_behind)
        or why_wrong_cost(problem, chosen, certificate.left_behind, certificate.seconds)
        or _why_wrong_bound(at_least(problem), certificate)
    )


def why_unmeasured(chosen: Iterable[Option]) -> str | None:
    """The first of these options that no plan may choose, since only a lower bound of its cost is known, or None."""
    unmeasured = next((option.id for option in chosen if option.is_open), None)
    return None if unmeasured is None else f"option {unmeasured} was not measured: its cost is a lower bound"


def _why_wrong_bound(problem: Problem, claim: Certificate) -> str | None:
    if reason := why_wrong_transitions(problem):
        return reason
    if not claim.lower_bound <= claim.seconds * (1 + ROUNDING):
        return f"lower bound {claim.lower_bound} s is above the cost {claim.seconds} s"
    gap = max(0.0, claim.seconds - claim.lower_bound) / claim.seconds if claim.seconds else 0.0
    if not abs(gap - claim.gap) <= ROUNDING:
        return f"the gap is {gap}, not {claim.gap}"
    if claim.proof is not None and (reason := why_no_proof(problem, claim.proof)):
        return reason
    if claim.enumeration is not None and (reason := why_not_enumerated(problem, claim.enumeration)):
        return reason
    if claim.branches and (reason := why_no_branches(problem, claim.branches)):
        return reason
    return _why_wrong_word(problem, claim)


def _why_wrong_word(problem: Problem, claim: Certificate) -> str | None:
    """Why the proof shows something else than the claim states of it, or None."""
    proved = _proved_seconds(problem, claim)
    if claim.proved != _reaches(proved, claim.seconds):
        has_proof = claim.proof is not None or claim.enumeration is not None or claim.branches
        shown = f"{proved} s" if has_proof else "nothing"
        return f"it is said to be {'' if claim.proved else 'not '}proved, and what is proved is {shown}"
    if not abs(claim.proved_seconds - proved) <= ROUNDING * abs(proved):
        return f"it is said to prove {claim.proved_seconds} s, and it proves {proved} s"
    return None


def _proved_seconds(problem: Problem, claim: Certificate) -> float:
    """The highest bound of its proofs. It needs no proof that a plan costs no less than its negative costs together."""
    costs = [option.seconds + launch(problem, option) for option in problem.options]
    found = [fsum(min(0.0, cost) for cost in costs)]
    if claim.proof is not None:
        found.append(claim.proof.seconds)
    if claim.enumeration is not None:
        found.append(claim.enumeration.seconds)
    if claim.branches:
        found.append(branches_seconds(problem, claim.branches))
    return max(found)


def _reaches(proved: float, seconds: float) -> bool:
    """Whether a proved bound reaches ``seconds``, up to rounding."""
    return proved >= seconds - ROUNDING * abs(seconds)
