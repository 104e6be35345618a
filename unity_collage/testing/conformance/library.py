"""The part of an examination that makes and runs kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...database.rows import FailureKind
from ...scratch import Scratch
from ...target import CUDA
from .asking import Answer, Failure, Subject
from .proposals import AskedCase, Proposals, Proposed
from .verdicts import Notes, counted

OF_THE_LIBRARY = (
    "fingerprint", "made", "runs", "numbers", "bounds", "repeatable", "outputs", "constants", "together", "exported",
    "pool", "threads", "errors",
)  # fmt: skip
"""The checks that need the library."""

_MOST_ENDS = 5
"""After this many kernels have ended the process, no more are tried."""
_SAMPLE = 24
"""How many kernels are put into one module and one library, one for each label."""
_ON_DEVICE = "its kernels run on a CUDA device, for which NVIDIA's libraries start threads of their own"
_OWN_THREADS = "it declares threads of its own (has_own_threads)"
_BY_KIND = {
    None: "numbers",
    FailureKind.COMPILE_ERROR: "made",
    FailureKind.WRONG_NUMBERS: "numbers",
    FailureKind.NOT_FINITE: "numbers",
    FailureKind.WROTE_OUTSIDE: "bounds",
}
"""The check that a kernel fails, by how it misbehaved; ``runs`` for all else."""


class LibraryExamination:
    """Asks two processes for kernels: ``subject`` for all of them, ``other`` for a few with one thread."""

    def __init__(
        self,
        subject: Subject,
        other: Subject,
        notes: Notes,
        tell: Callable[[str], None],
        timeout_seconds: float,
        stays_in_ir: bool,
        kind: str,
        own_threads: bool = False,
    ):
        """``kind``: the kind of targets that the kernels are made for. ``own_threads``: whether they may start some."""
        self._subject, self._other, self._notes, self._tell = subject, other, notes, tell
        self._timeout_seconds = timeout_seconds
        self._stays_in_ir, self._kind = stays_in_ir, kind
        self._why_more_threads = _ON_DEVICE if kind == CUDA else _OWN_THREADS if own_threads else None

    def run(self, proposals: Proposals) -> None:
        """Run all checks that need the library."""
        self._fingerprint()
        if self._why_more_threads is not None:
            self._notes.skipped(self._why_more_threads, "threads")
        if not proposals.kernels:
            self._notes.skipped("it proposes no kernel", *OF_THE_LIBRARY)
            return
        with Subject(None, 2, self._timeout_seconds) as fresh:
            good = self._examined(list(proposals.kernels.values()))
            sample = list({kernel.label: kernel for kernel in reversed(good)}.values())[:_SAMPLE]
            if sample:
                self._exported(sample, fresh)
                if self._why_more_threads is None:
                    self._threads(sample)
        if self._stays_in_ir:
            self._notes.skipped("its kernels stay in the IR, it has no code generator", "together", "errors")
        else:
            if sample:
                self._together(sample)
            self._errors(proposals.declined.values())
        self._notes.skipped("no kernel is right alone", *OF_THE_LIBRARY)

    def _fingerprint(self) -> None:
        try:
            one, two = (process.ask("fingerprint") for process in (self._subject, self._other))
        except Failure as failure:
            self._notes.found("fingerprint", failure.reason)
            return
        texts = list(dict.fromkeys([*one["texts"], *two["texts"]]))
        if not one["is_text"]:
            self._notes.found("fingerprint", f"it is {texts[0]}, not a text")
        elif len(texts) > 1:
            self._notes.found("fingerprint", f"it is not stable: {texts[0]!r}, then {texts[1]!r}")
        elif not texts[0].strip() or "\n" in texts[0]:
            self._notes.found("fingerprint", f"{texts[0]!r} is not one line of text")
        self._notes.passed("fingerprint", texts[0])

    def _examined(self, kernels: Sequence[Proposed]) -> list[Proposed]:
        """The kernels without faults, with their functions."""
        good: list[Proposed] = []
        missing: dict[Proposed, str] = {}
        before = self._subject.ended
        for tried, kernel in enumerate(kernels):
            if self._subject.ended - before >= _MOST_ENDS:
                left = len(kernels) - tried
                self._notes.found("runs", f"{left} kernels were not tried: too many have ended the process")
                break
            self._tell(kernel.name)
            try:
                made = self._subject.ask("kernel", **kernel.arguments())
            except Failure as failure:
                self._failed(kernel, failure)
                continue
            if "not_here" in made:
                missing[kernel] = made["not_here"]
                continue
            self._noted(kernel, made)
            good.append(replace(kernel, function=made["function"]))
        if kernels:
            self._missing(kernels, missing)
            self._judged(len(kernels), len(missing), good)
        return good

    def _missing(self, kernels: Sequence[Proposed], missing: Mapping[Proposed, str]) -> None:
        """Note what the library cannot compute on this device with any of the labels.

        A rule offers a few algorithms of a library as labels, and the library may have fewer on some device.
        """
        here = {kernel.computation for kernel in kernels if kernel not in missing}
        for kernel, reason in missing.items():
            if kernel.computation not in here:
                self._notes.found("made", f"{kernel.name}: {reason}")

    def _failed(self, kernel: Proposed, failure: Failure) -> None:
        checks = [self._check_of(failure)]
        checks += ["outputs"] if kernel.results > 1 else []
        checks += ["constants"] if kernel.constants else []
        for check in checks:
            self._notes.found(check, f"{kernel.name}: {failure.reason}")

    def _check_of(self, failure: Failure) -> str:
        check = _BY_KIND.get(failure.kind, "runs")
        return "errors" if check == "runs" and failure.stage == "building" else check

    def _noted(self, kernel: Proposed, made: Answer) -> None:
        """Note what else is wrong with a kernel whose numbers are right."""
        if made["differs"] is not None:
            self._notes.found("repeatable", f"{kernel.name}: {made['differs']}")
        if made["surplus_threads"] and self._why_more_threads is None:
            self._notes.found("threads", f"{kernel.name}: it started {_own(made['surplus_threads'])}")
        if made["conflict"] is not None:
            self._notes.found("pool", made["conflict"])

    def _judged(self, proposed: int, missing: int, good: Sequence[Proposed]) -> None:
        """Note for the checks without findings what holds for all kernels."""
        notes, count, made = self._notes, counted(len(good), "kernel"), proposed - missing
        more = f"; the library has no implementation of {missing} on this device" if missing else ""
        notes.passed("made", f"{counted(proposed, 'kernel')} proposed, {made} made{more}")
        notes.passed("runs", f"{counted(made, 'kernel')} came back")
        if good:
            notes.passed("numbers", f"{count}: those of numpy, on random inputs and on edge values")
            notes.passed("bounds", f"{count} left their neighbours and their inputs alone")
            notes.passed("repeatable", f"{count} gave equal numbers again")
            notes.passed("pool", "there is one thread pool in the process")
        self._counted("outputs", [k for k in good if k.results > 1], "with several outputs")
        self._counted("constants", [k for k in good if k.constants], "with constants")

    def _counted(self, check: str, kernels: Sequence[Proposed], which: str) -> None:
        if kernels:
            self._notes.passed(check, f"{counted(len(kernels), 'kernel')} {which}")
        self._notes.skipped(f"it makes no kernel {which} of any function here", check)

    def _threads(self, sample: Sequence[Proposed]) -> None:
        """Check that kernels respect the size of the pool, in a process where no kernel has run yet."""
        for kernel in sample:
            self._tell(f"{kernel.name} on one thread")
            try:
                made = self._other.ask("kernel", **kernel.arguments(), threads=1)
            except Failure as failure:
                self._failed(kernel, failure)
                continue
            if made["surplus_threads"]:
                started = _own(made["surplus_threads"])
                self._notes.found("threads", f"{kernel.name}: it started {started}, and one is asked for")
        self._notes.passed(
            "threads", f"{counted(len(sample), 'kernel')} on a pool of one thread started no other"
        )

    def _together(self, sample: Sequence[Proposed]) -> None:
        self._tell("several kernels in one module")
        try:
            self._subject.ask("together", functions=[kernel.function for kernel in sample])
        except Failure as failure:
            self._notes.found("together", failure.reason)
        self._notes.passed(
            "together", f"{counted(len(sample), 'function')}, those with constants twice, in one module"
        )

    def _exported(self, sample: Sequence[Proposed], fresh: Subject) -> None:
        self._tell("a library of several kernels")
        functions = [kernel.function for kernel in sample]
        with Scratch("conformance") as folder:
            path = str(Path(folder) / "kernels.so")
            try:
                self._subject.ask("export", functions=functions, path=path)
                fresh.ask("load", functions=functions, path=path, kind=self._kind)
            except Failure as failure:
                self._notes.found("exported", failure.reason)
        line = f"a library of {counted(len(sample), 'kernel')} gives the right numbers in a fresh process"
        self._notes.passed("exported", line)

    def _errors(self, declined: Iterable[tuple[AskedCase, int]]) -> None:
        """Check that the code generator makes a kernel for a refused function, or raises an exception."""
        asked, raised = 0, 0
        for case, index in declined:
            asked += 1
            self._tell(f"what is declined of {case.name}")
            try:
                self._subject.ask("declined", **case.arguments(), index=index)
            except Failure as failure:
                raised += 1
                if failure.ended:
                    self._notes.found("errors", f"[{case.name}], which the rule declines: {failure.reason}")
        if asked:
            line = f"{counted(asked, 'declined call')}, {raised} refused by an exception, none crashed"
            self._notes.passed("errors", line)
        self._notes.skipped("it declines nothing", "errors")


def _own(threads: int) -> str:
    return f"{counted(threads, 'thread')} of its own"
