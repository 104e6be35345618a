"""Whether chosen options are a valid plan, and what it costs, after the definition in ``problem``.

This file shares no code with the searches. It reads only the fields of the problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, inf

from ..index_set import members
from .problem import Option, Problem
from .proof import transition

ROUNDING = 1e-9
"""How far two sums of the same costs may differ, relative to their value."""


def why_not_valid(problem: Problem, chosen: Sequence[Option], left_behind: Iterable[int]) -> str | None:
    """Why these options, in this order, and these nodes left behind are not a valid plan, or None."""
    return _why_not_valid(problem, _kernels(problem, chosen), sorted(left_behind))


def why_wrong_cost(
    problem: Problem, chosen: Sequence[Option], left_behind: Iterable[int], seconds: float
) -> str | None:
    """Why a valid plan does not cost ``seconds``, or None."""
    cost = _seconds_of(problem, _kernels(problem, chosen), sorted(left_behind))
    return None if abs(cost - seconds) <= ROUNDING * cost else f"it costs {cost} s, not {seconds} s"


def seconds_of_only(problem: Problem, chosen: Sequence[Option]) -> float:
    """The cost of the plan of exactly these options, in any order; infinite if they are not a valid plan."""
    kernels = _kernels(problem, chosen)
    left = _left_behind(problem, kernels)
    ordered = _in_order(problem, kernels, left)
    if ordered is None or _why_not_valid(problem, ordered, left) is not None:
        return inf
    return _seconds_of(problem, ordered, left)


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
        if not 0 <= node < len(problem.sources) or not problem.free >> node & 1:
            return f"node {node} must not be left behind"
    for kernel in kernels:
        if max(kernel.inside) not in kernel.writes:
            return f"option {kernel.option.id} does not write its last node"
        if kernel.border != kernel.writes and not problem.redundant:
            return f"option {kernel.option.id} hides node {min(kernel.border - kernel.writes)}"
    used = {kernel.option.backend for kernel in kernels}
    for one, other in problem.exclusions:
        if one in used and other in used:
            return f"{one} and {other} exclude each other"
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


def _left_behind(problem: Problem, kernels: Sequence[_Kernel]) -> list[int]:
    """The nodes that must be left behind: wanted, and not written. A node reads smaller ones only."""
    read = {source for sources in problem.sources for source in sources}
    wanted = set(range(len(problem.sources))) - read | set(members(problem.results))
    wanted.update(node for kernel in kernels for node in kernel.reads)
    written = {node for kernel in kernels for node in kernel.writes}
    left: list[int] = []
    for node in reversed(range(len(problem.sources))):
        if node in wanted and node not in written:
            left.append(node)
            wanted.update(problem.sources[node])
    return sorted(left)


def _in_order(problem: Problem, kernels: Sequence[_Kernel], left: Sequence[int]) -> list[_Kernel] | None:
    """The kernels in an order in which they can run, or None if they wait for each other."""
    made: set[int] = set()
    ordered: list[_Kernel] = []
    waiting = list(kernels)
    while waiting:
        for node in left:
            if made.issuperset(problem.sources[node]):
                made.add(node)
        ready = [kernel for kernel in waiting if made.issuperset(kernel.reads)]
        if not ready:
            return None
        made.update(node for kernel in ready for node in kernel.writes)
        ordered += ready
        waiting = [kernel for kernel in waiting if kernel not in ready]
    return ordered


def _seconds_of(problem: Problem, kernels: Sequence[_Kernel], left: Sequence[int]) -> float:
    writer = {node: kernel.option.sides for kernel in kernels for node in kernel.writes}
    origins = {node: {node} for node in writer}
    for node in left:
        origins[node] = {origin for source in problem.sources[node] for origin in origins[source]}
    read = {(o, side) for k in kernels for node in k.reads for o in origins[node] for side in k.option.sides}
    crossings = [(side, reader, origin) for origin, reader in read for side in writer[origin]]
    return fsum(
        [kernel.option.seconds + launch(problem, kernel.option) for kernel in kernels]
        + [transition(problem, *crossing) for crossing in crossings]
    )


def launch(problem: Problem, option: Option) -> float:
    """The seconds that calling the kernel of an option costs."""
    return problem.launches.get(option.backend, problem.launch_seconds)
