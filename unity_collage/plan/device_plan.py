"""DevicePlan: where the kernels of a function run, chosen by cost, and what is proved about the choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..search import Option, Problem
from ..search.certificate import Certificate, why_not
from ..search.validity import ROUNDING, seconds_of_only
from .check_problems import why_malformed
from .instance import unpacked
from .plan import VIEW


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """A kernel that the choice of devices assumes; SearchPartition chooses again among the kernels of its device."""

    backend: str
    label: str
    device: str
    """The label of a VDevice, such as ``llvm:1``."""
    bindings: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class DeviceCopy:
    """A value that crosses from one device to another."""

    value: str
    source: str
    destination: str


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """The devices of one dataflow block, or the reason why they were not chosen."""

    kernels: tuple[DeviceKernel, ...] = ()
    copies: tuple[DeviceCopy, ...] = ()
    """The copies of the block, those for annotations included."""
    seconds: float = 0.0
    """Kernels, launches, transitions and copies."""
    copy_seconds: float = 0.0
    certificate: Certificate | None = None
    problem: str = ""
    """The problem that the certificate is about (:mod:`.instance`)."""
    reason: str = ""
    """Why values of the function stay where they are planned; empty if devices were chosen."""

    @property
    def proved(self) -> bool:
        """Whether it is proved that no choice of kernels and devices costs less."""
        return self.certificate is not None and self.certificate.proved

    def said(self) -> str:
        """The choice in one sentence."""
        if self.reason:
            return f"devices were not chosen by cost: {self.reason}"
        counts: dict[str, int] = {}
        for kernel in self.kernels:
            counts[kernel.device] = counts.get(kernel.device, 0) + 1
        where = (
            ", ".join(f"{count} on {device}" for device, count in sorted(counts.items()))
            or "none with a cost"
        )
        number = f"{len(self.copies)} {'copy takes' if len(self.copies) == 1 else 'copies take'}"
        between = f"{number} {self.copy_seconds * 1e6:.4g} us between devices" if self.copies else "no copies"
        word = "" if self.proved else "not "
        return (
            f"devices were chosen by cost (kernels: {where}; {between}), and {word}proved to be the cheapest; "
            "the seconds of the plan are without copies"
        )


def why_no_device_plan(plan: DevicePlan) -> str | None:
    """What is wrong with a plan and its certificate, or None; the certificate is checked against its problem."""
    if plan.reason:
        return None
    if plan.certificate is None or not plan.problem:
        return "the plan has no certificate, or not the problem that it answers"
    if abs(plan.certificate.seconds - plan.seconds) > 1e-9 * abs(plan.seconds):
        return f"the plan says {plan.seconds} s, and its certificate {plan.certificate.seconds} s"
    problem = unpacked(plan.problem)
    if (reason := why_malformed(problem) or why_not(problem, plan.certificate)) is not None:
        return reason
    by_id = {option.id: option for option in problem.options}
    chosen = [by_id[identity] for identity in plan.certificate.chosen]
    said = sorted((kernel.device, kernel.backend, kernel.seconds) for kernel in plan.kernels)
    proved = sorted((o.device, o.backend, o.seconds) for o in chosen if o.backend != VIEW)
    if said != proved:
        return "the kernels are not those of the certificate"
    return _why_wrong_copies(problem, chosen, plan)


def _why_wrong_copies(problem: Problem, chosen: Sequence[Option], plan: DevicePlan) -> str | None:
    """Why the copies are between other devices than those of the problem, or cost something else, or None."""
    devices = {option.device for option in problem.options}
    pairs = [pair for pair in problem.transitions if devices.issuperset(pair)]
    for copy in plan.copies:
        if (copy.source, copy.destination) not in pairs:
            return f"{copy.value} is copied from {copy.source} to {copy.destination}, which has no cost"
    apart = {pair: seconds for pair, seconds in problem.transitions.items() if pair not in pairs}
    seconds = plan.seconds - seconds_of_only(replace(problem, transitions=apart), chosen)
    if not abs(seconds - plan.copy_seconds) <= ROUNDING * abs(plan.seconds):
        return f"the copies cost {seconds} s, not {plan.copy_seconds} s"
    if seconds > ROUNDING * abs(plan.seconds) and not plan.copies:
        return f"copies cost {seconds} s, and none is named"
    return None
