"""What a search claims, and an independent check of the claim.

The check follows the definition in ``problem`` and shares no code with the searches: it reads only the fields of the
problem. To trust a plan it is enough to read this file and :mod:`.proof`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from ..index_set import members
from .problem import Option, Problem, Solution
from .proof import BoundProof, why_no_proof

ROUNDING = 1e-9
"""How far two sums of the same costs may differ, relative to their value."""


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
    """What the search says: no valid plan is cheaper. Its own word, as far as ``proof`` does not reach."""
    gap: float
    """The difference between the cost and the lower bound, as a part of the cost."""
    proved: bool
    """Whether ``proof`` shows that no valid plan is cheaper, up to rounding."""
    algorithm: str
    proof: BoundProof | None = None
    """The best proof that was found, of the lower bound or of a lower one."""

    @property
    def unproved(self) -> float:
        """By what part of its cost another plan may be cheaper, as far as the proof reaches."""
        if self.proved or not self.seconds:
            return 0.0
        return max(0.0, 1.0 - (self.proof.seconds if self.proof else 0.0) / self.seconds)


def certificate_of(problem: Problem, solution: Solution, proof: BoundProof | None = None) -> Certificate:
    """The claim of ``solution`` with a proof."""
    return Certificate(
        chosen=tuple(option.id for option in solution.chosen),
        left_behind=tuple(members(solution.left_behind)),
        seconds=solution.seconds,
        lower_bound=solution.lower_bound,
        gap=solution.gap,
        proved=proof is not None and _reaches(proof, solution.seconds - solution.tie_seconds),
        algorithm=solution.algorithm,
        proof=proof,
    )


def why_not(problem: Problem, certificate: Certificate) -> str | None:
    """The first error in the claim, or None."""
    by_id = {option.id: option for option in problem.options}
    for identity in certificate.chosen:
        if identity not in by_id:
            return f"option {identity} does not exist"
    kernels = _kernels(problem, [by_id[identity] for identity in certificate.chosen])
    left = sorted(certificate.left_behind)
    return (
        _why_not_valid(problem, kernels, left)
        or _why_wrong_cost(problem, kernels, left, certificate.seconds)
        or _why_wrong_bound(problem, certificate)
    )


def why_not_valid(problem: Problem, chosen: Sequence[Option], left_behind: Iterable[int]) -> str | None:
    """Why these options, in this order, and these nodes left behind are not a valid plan, or None."""
    return _why_not_valid(problem, _kernels(problem, chosen), sorted(left_behind))


def why_wrong_cost(
    problem: Problem, chosen: Sequence[Option], left_behind: Iterable[int], seconds: float
) -> str | None:
    """Why a valid plan does not cost ``seconds``, or None."""
    return _why_wrong_cost(problem, _kernels(problem, chosen), sorted(left_behind), seconds)


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A chosen option with its border."""

    option: Option
    inside: set[int]
    reads: set[int]
    border: set[int]
    """Inside nodes that are read outside or wanted by the caller."""
    writes: set[int]


def _kernels(problem: Problem, chosen: Sequence[Option]) -> list[_Kernel]:
    readers: dict[int, set[int]] = {}
    for node, sources in enumerate(problem.sources):
        for source in sources:
            readers.setdefault(source, set()).add(node)
    kernels: list[_Kernel] = []
    for option in chosen:
        inside = set(members(option.inside))
        reads = {source for node in inside for source in problem.sources[node]} - inside
        border = {n for n in inside if n not in readers or readers[n] - inside or problem.results >> n & 1}
        kernels.append(_Kernel(option, inside, reads, border, border - set(members(option.hidden))))
    return kernels


def _why_not_valid(problem: Problem, kernels: Sequence[_Kernel], left: Sequence[int]) -> str | None:
    return (
        _why_not_alone(problem, kernels, left)
        or _why_not_as_wanted(problem, kernels, left)
        or _why_out_of_order(problem, kernels, left)
    )


def _why_not_alone(problem: Problem, kernels: Sequence[_Kernel], left: Sequence[int]) -> str | None:
    """The first option or node that breaks a rule by itself, or is covered too often, or None."""
    for node in left:
        if not problem.free >> node & 1:
            return f"node {node} must not be left behind"
    for kernel in kernels:
        if max(kernel.inside) not in kernel.writes:
            return f"option {kernel.option.id} does not write its last node"
        if kernel.border != kernel.writes and not problem.redundant:
            return f"option {kernel.option.id} hides node {min(kernel.border - kernel.writes)}"
    times = Counter(node for kernel in kernels for node in kernel.inside) + Counter(left)
    for node in range(len(problem.sources)):
        if times[node] != 1 and not problem.redundant:
            return f"node {node} is covered {times[node]} times"
    return None


def _why_not_as_wanted(problem: Problem, kernels: Sequence[_Kernel], left: Sequence[int]) -> str | None:
    """The first node that breaks the rule that wanted values are written once and others never, or None."""
    read_by_nodes = {source for sources in problem.sources for source in sources}
    wanted = set(range(len(problem.sources))) - read_by_nodes | set(members(problem.results))
    wanted.update(source for node in left for source in problem.sources[node])
    wanted.update(node for kernel in kernels for node in kernel.reads)
    written = Counter(node for kernel in kernels for node in kernel.writes) + Counter(left)
    for node in range(len(problem.sources)):
        if node in wanted and written[node] != 1:
            return f"node {node} is wanted and written {written[node]} times"
        if node not in wanted and written[node]:
            return f"node {node} is written and not wanted"
    return None


def _why_out_of_order(problem: Problem, kernels: Sequence[_Kernel], left: Sequence[int]) -> str | None:
    """The first kernel that runs before one of its inputs is available, or None.

    A value is available after the kernel that writes it, a node left behind after the last of its sources.
    """
    comes = {node: turn for turn, kernel in enumerate(kernels) for node in kernel.writes}
    for node in left:
        comes[node] = max((comes[source] for source in problem.sources[node]), default=-1)
    for turn, kernel in enumerate(kernels):
        for node in kernel.reads:
            if comes[node] >= turn:
                return f"option {kernel.option.id} runs before node {node}, which it reads, is available"
    return None


def _why_wrong_cost(
    problem: Problem, kernels: Sequence[_Kernel], left: Sequence[int], seconds: float
) -> str | None:
    writer = {node: kernel.option.backend for kernel in kernels for node in kernel.writes}
    origins = {node: {node} for node in writer}
    for node in left:
        origins[node] = {origin for source in problem.sources[node] for origin in origins[source]}
    read = {(o, k.option.backend) for k in kernels for node in k.reads for o in origins[node]}
    crossings = [(writer[origin], reader) for origin, reader in read if writer[origin] != reader]
    cost = fsum(
        [kernel.option.seconds + launch(problem, kernel.option) for kernel in kernels]
        + [problem.transitions.get(crossing, 0.0) for crossing in crossings]
    )
    if not abs(cost - seconds) <= ROUNDING * cost:
        return f"it costs {cost} s, not {seconds} s"
    return None


def _why_wrong_bound(problem: Problem, claim: Certificate) -> str | None:
    if not claim.lower_bound <= claim.seconds * (1 + ROUNDING):
        return f"lower bound {claim.lower_bound} s is above the cost {claim.seconds} s"
    gap = max(0.0, claim.seconds - claim.lower_bound) / claim.seconds if claim.seconds else 0.0
    if not abs(gap - claim.gap) <= ROUNDING:
        return f"the gap is {gap}, not {claim.gap}"
    if claim.proof is not None and (reason := why_no_proof(problem, claim.proof)):
        return reason
    proved = claim.proof is not None and _reaches(claim.proof, claim.seconds)
    if claim.proved != proved:
        shown = "nothing" if claim.proof is None else f"{claim.proof.seconds} s"
        return f"it is said to be {'' if claim.proved else 'not '}proved, and what is proved is {shown}"
    return None


def launch(problem: Problem, option: Option) -> float:
    """The seconds that calling the kernel of an option costs."""
    return problem.launches.get(option.backend, problem.launch_seconds)


def _reaches(proof: BoundProof, seconds: float) -> bool:
    """Whether a proof reaches ``seconds``, up to rounding."""
    return proof.seconds >= seconds - ROUNDING * abs(seconds)
