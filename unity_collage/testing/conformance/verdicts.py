"""The checks of the kit, their verdicts, and what to do about failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

CHECKS: Mapping[str, str] = {
    "value": "Make it a module-level unity_collage.Backend(...) whose name is an identifier.",
    "rule": "Build the rule of frozen values: name predicates by functions of the module, not by lambdas made in it.",
    "availability": "Return None or one sentence from why_unavailable; look for files or distributions, "
    "and import or load the library in codegen.",
    "fingerprint": "Return one line with the library's name, version and instruction set: costs are kept under it.",
    "proposals": "Yield Found(inside, rule, label) for convex groups of one dataflow block, Declined for all else.",
    "order": "Walk graph.nodes in order; never iterate over a set, and ask nothing that changes.",
    "refusals": "Let every why_not return None or a sentence, never False or an empty text.",
    "made": "Decline in the rule what the code generator cannot make, by the same condition.",
    "runs": "A kernel takes its inputs, then its outputs, and returns: it raises for what it cannot compute, "
    "and never ends the process.",
    "numbers": "Compare with unity_collage.reference.run on the case that is named; mind odd extents, edge values "
    "and every element of every output.",
    "bounds": "Read and write inside of the tensors only, and never write to an input.",
    "repeatable": "Keep no state between two calls of a kernel; write scratch memory before you read it.",
    "outputs": "A tuple is one output tensor a field, behind the inputs, in its order.",
    "constants": "Constants are inside the functions that codegen is given: keep their data in the module.",
    "together": "Return modules with a function for the global_symbol of each function, with constants of its own.",
    "exported": "Return modules that can be saved, and whose loader is there without your Python package: "
    "generated code, or the compiled kernel itself.",
    "pool": "Link the library against libgomp and give it to unity_collage.runtime.adopt_openmp, or run it on one "
    "thread.",
    "threads": "Start no threads: give the library to unity_collage.runtime.adopt_openmp, or run it on one thread.",
    "errors": "Let codegen raise an exception that says which operator it cannot make.",
}
"""What to do when a check fails, by its name, in the order of the report."""


class CheckState(Enum):
    """How a check ended."""

    PASSED = "ok"
    FAILED = "FAILED"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check in one line."""

    check: str
    state: CheckState
    line: str
    findings: tuple[str, ...] = ()
    """Everything that is wrong; the line has the first finding."""

    @property
    def remedy(self) -> str:
        """What to do about a failure; empty where nothing failed."""
        return CHECKS[self.check] if self.state is CheckState.FAILED else ""


@dataclass(frozen=True, slots=True)
class Report:
    """The verdicts on one backend, in the order of ``CHECKS``."""

    backend: str
    verdicts: tuple[CheckResult, ...]
    unavailable: str | None = None
    """Why the backend cannot run here; then only the checks without its library ran."""

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The results of the checks that failed."""
        return tuple(verdict for verdict in self.verdicts if verdict.state is CheckState.FAILED)

    def __getitem__(self, check: str) -> CheckResult:
        return next(verdict for verdict in self.verdicts if verdict.check == check)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, findings: int = 4) -> Iterator[str]:
        """A line for each check; a failed one is followed by more of its ``findings``, and what to do."""
        for verdict in self.verdicts:
            yield f"{verdict.state.value:8}{verdict.check:14}{verdict.line}"
            yield from (f"{'':22}{finding}" for finding in verdict.findings[1 : 1 + findings])
            if verdict.remedy:
                yield f"{'':22}-> {verdict.remedy}"


def counted(count: int, what: str) -> str:
    """``1 kernel``, ``2 kernels``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


class Notes:
    """Collects findings while an examination runs."""

    def __init__(self) -> None:
        self._findings: dict[str, dict[str, None]] = {}
        self._passed: dict[str, str] = {}
        self._skipped: dict[str, str] = {}

    def found(self, check: str, finding: str) -> None:
        """Note that something is wrong."""
        self._findings.setdefault(check, {})[finding] = None

    def passed(self, check: str, line: str) -> None:
        """Note what holds, which is the verdict if nothing wrong is found."""
        self._passed[check] = line

    def skipped(self, reason: str, *checks: str) -> None:
        """Note why these checks were skipped, which is the verdict if they are not noted otherwise."""
        for check in checks:
            self._skipped.setdefault(check, reason)

    def verdicts(self) -> tuple[CheckResult, ...]:
        """The result of every check, in the order of ``CHECKS``."""
        return tuple(self._verdict(check) for check in CHECKS)

    def _verdict(self, check: str) -> CheckResult:
        findings = list(self._findings.get(check, {}))
        if findings:
            more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
            return CheckResult(check, CheckState.FAILED, findings[0] + more, tuple(findings))
        if check in self._passed:
            return CheckResult(check, CheckState.PASSED, self._passed[check])
        return CheckResult(check, CheckState.SKIPPED, self._skipped.get(check, "it was not reached"))
