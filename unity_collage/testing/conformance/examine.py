"""The examination of one backend, from its value to a library that another process loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.metadata import entry_points
from itertools import zip_longest

import tvm

from ...backends import registry
from ...errors import CollageError, UnknownBackend
from ...target import CUDA
from .asking import Answer, Failure, Subject
from .cases import CASES, Case
from .cuda_cases import CUDA_CASES
from .library import OF_THE_LIBRARY, LibraryExamination
from .proposals import AskedCase, Proposals, Proposed
from .verdicts import Notes, Report, counted

_THREADS = 2
"""The number of threads in the pool: two, so that kernels that are not safe with two threads are found."""


def examine(
    where: str,
    cases: Sequence[Case] = (*CASES, *CUDA_CASES),
    timeout_seconds: float = 60.0,
    memory_bytes: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Check all promises of the backend ``where``: the name of an installed backend, or ``package.module:VALUE``.

    Its code runs only in worker processes, so a crash is a verdict. ``cases``: those for another kind of targets are
    left out. ``timeout_seconds``: the limit for one step of one kernel. ``memory_bytes``: how many bytes a process may
    grow, by default half of the machine's memory. ``tell`` is called with what is being examined. Raises
    UnknownBackend for a name that no backend has, and CollageError for a value that cannot be imported.
    """
    _check_name(where)
    made = [(case.kind, AskedCase(case.name, tvm.ir.save_json(case.make()))) for case in cases]
    notes = Notes()
    with ExitStack() as processes:
        subject = processes.enter_context(Subject(where, _THREADS, timeout_seconds))
        met = _met(subject, where, notes)
        if met["value"] is not None:
            return Report(where, notes.verdicts())
        other = processes.enter_context(Subject(where, _THREADS, timeout_seconds))
        _rule(subject, notes)
        asked = [case for kind, case in made if kind in (None, met["kind"])]
        proposals = _proposals(subject, other, asked, notes, tell)
        unavailable = met["unavailable"]
        if unavailable is None:
            LibraryExamination(
                subject,
                other,
                notes,
                tell,
                timeout_seconds,
                met["stays_in_ir"],
                met["kind"],
                met["own_threads"],
            ).run(proposals)
        else:
            notes.skipped(f"not available here: {unavailable}", *OF_THE_LIBRARY)
    return Report(met["name"], notes.verdicts(), unavailable)


def _check_name(where: str) -> None:
    """Raises UnknownBackend for a misspelt name, where that is known without code of other packages."""
    if ":" not in where and not entry_points(group=registry.ENTRY_POINT_GROUP):
        registry.get(where)


def _met(subject: Subject, where: str, notes: Notes) -> Answer:
    """The backend's value, and whether it can be used here; raises CollageError if it cannot be imported."""
    try:
        met = subject.ask("meet", where=where)
    except Failure as failure:
        raise CollageError(failure.reason) from failure
    if "unknown" in met:
        raise UnknownBackend(met["unknown"])
    if met["value"] is not None:
        notes.found("value", met["value"])
        return met
    notes.passed("value", f"{met['name']} is a frozen value that hashes")
    for moment, loaded in (("importing it", met["imported"]), ("why_unavailable()", met["asked"])):
        if loaded:
            notes.found("availability", f"{moment} loads {', '.join(loaded)}")
    reason = met["unavailable"]
    if reason is not None and (not isinstance(reason, str) or not reason.strip()):
        notes.found("availability", f"why_unavailable() answers {reason!r}, neither None nor a text")
    elif reason is None and met["no_device"] is not None:
        reason = f"there is no CUDA device: {met['no_device']}"
        notes.found("availability", f"why_unavailable() answers None, and {reason}")
    state = "available" if reason is None else f"not available, {reason}"
    loaded = "only the driver and the CUDA runtime were" if met["kind"] == CUDA else "nothing was"
    notes.passed("availability", f"{state}; {loaded} loaded to know")
    return {**met, "unavailable": reason}


def _rule(subject: Subject, notes: Notes) -> None:
    try:
        problem = subject.ask("rule")["problem"]
    except Failure as failure:
        problem = failure.reason
    if problem is not None:
        notes.found("rule", problem)
    notes.passed("rule", "equal for equal targets, hashes, and prints without addresses")


def _proposals(
    subject: Subject, other: Subject, cases: Sequence[AskedCase], notes: Notes, tell: Callable[[str], None]
) -> Proposals:
    """All distinct proposed kernels, and a declined call for each operator and reason."""
    found = Proposals()
    for case in cases:
        tell(f"proposals for {case.name}")
        try:
            said = subject.ask("proposals", **case.arguments())
            again = other.ask("proposals", **case.arguments())
        except Failure as failure:
            notes.found("proposals", f"[{case.name}]: {failure.reason}")
            continue
        for problem in said["invalid"]:
            notes.found("proposals", f"[{case.name}]: {problem}")
        _compare(case, said["text"], again["text"], notes)
        for one in said["proposals"]:
            kernel = Proposed(
                case, one["number"], one["label"], tuple(one["nodes"]), one["results"], one["constants"]
            )
            found.kernels.setdefault(one["digest"], kernel)
        _refusals(case, said["refusals"], found, notes)
    _proposed(found, len(cases), notes)
    return found


def _refusals(case: AskedCase, refusals: Sequence[Answer], found: Proposals, notes: Notes) -> None:
    for one in refusals:
        found.refusals += 1
        if one["problem"] is not None:
            notes.found("refusals", f"[{case.name}]: {one['problem']}")
        elif one["op"]:
            found.declined.setdefault((one["op"], one["reason"]), (case, one["index"]))


def _proposed(found: Proposals, cases: int, notes: Notes) -> None:
    count = counted(cases, "function")
    if not found.kernels:
        notes.found("proposals", f"it proposes nothing for any of {count}: give cases of what it takes")
    notes.passed(
        "proposals", f"{counted(len(found.kernels), 'distinct kernel')} proposed for {count}, all valid"
    )
    notes.passed("order", "the same answers in the same order in two processes")
    notes.passed("refusals", f"{counted(found.refusals, 'refusal')}, each with a reason")


def _compare(case: AskedCase, one: Sequence[str], other: Sequence[str], notes: Notes) -> None:
    pair = next((pair for pair in zip_longest(one, other) if pair[0] != pair[1]), None)
    if pair is not None:
        notes.found("order", f"[{case.name}]: {pair[0]} in one process, {pair[1]} in another")
