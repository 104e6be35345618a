"""The backend under examination, inside a worker process: its value, its proposals, its refusals."""

from __future__ import annotations

import ssl  # noqa: F401 - imported first, so that its libraries do not count as loaded by the backend
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.target import Target

from ...annotations import LIFTED
from ...backends import registry
from ...backends.base import Backend
from ...errors import CollageError
from ...graph import DataflowGraph, Limits, Signatures, SubGraph, members, outside_vars
from ...lowering.kernel_sizes import why_not_sized
from ...lowering.outlined import kernel_digest, kernel_function
from ...plan.candidate import Candidate, CompositePart
from ...rules import Declined, Found

_ANY_SHAPE = Limits(max_depth=0, max_exits=0, allow_taps=True)
_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]

Answer = dict[str, Any]


def resolve(where: str) -> Any:
    """The value that ``where`` names: an installed backend, or ``package.module:VALUE`` as in an entry point."""
    if ":" not in where:
        return registry.get(where)
    try:
        return EntryPoint(where, where, registry.ENTRY_POINT_GROUP).load()
    except (ImportError, AttributeError) as error:
        raise CollageError(f"{where} cannot be imported: {error}") from error


def why_no_value(backend: Any) -> str | None:
    """Why ``backend`` is not a valid backend value, or None."""
    if not isinstance(backend, Backend):
        return f"it is of type {type(backend).__name__}, not unity_collage.Backend"
    if not isinstance(backend.name, str) or not backend.name.isidentifier():
        return (
            f"its name is {backend.name!r}, which is not an identifier and cannot be part of symbols and keys"
        )
    try:
        hash(backend)
    except TypeError as error:
        return f"it does not hash: {error}"
    return None


def why_no_rule(backend: Backend, target: Target) -> str | None:
    """Why the result of ``backend.rule`` is not a rule, or not a value, or None."""
    first, second = backend.rule(target), backend.rule(target)
    if not callable(getattr(first, "apply", None)):
        return f"it is of type {type(first).__name__}, which has no method apply"
    try:
        same = first == second and hash(first) == hash(second)
    except TypeError as error:
        return f"it does not hash: {error}"
    if not same:
        return "two calls for one target give rules that are not equal"
    return "its text contains an address of this process" if " at 0x" in str(first) else None


class Watch:
    """Watches what this process loads: shared libraries, and Python packages other than the standard library."""

    def __init__(self) -> None:
        self._libraries, self._packages = _libraries(), _packages()

    def libraries(self) -> list[str]:
        """The shared libraries that were loaded since the last call of a method."""
        return self._news()[0]

    def everything(self) -> list[str]:
        """The libraries and packages that were loaded since the last call of a method."""
        libraries, packages = self._news()
        return [*libraries, *packages]

    def _news(self) -> tuple[list[str], list[str]]:
        libraries, packages = _libraries(), _packages()
        found = sorted(libraries - self._libraries), sorted(packages - self._packages)
        self._libraries, self._packages = libraries, packages
        return found


def _libraries() -> set[str]:
    paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    return {path for path in paths if ".so" in path and not path.startswith(_STANDARD_LIBRARY + "/lib-dyn")}


def _packages() -> set[str]:
    return {name.partition(".")[0] for name in list(sys.modules)} - sys.stdlib_module_names


class Asked:
    """The answers of the rule for one function."""

    def __init__(self, backend: Backend, func: relax.Function, target: Target):
        self.graph = DataflowGraph(func)
        with target:
            self.answers = list(backend.rule(target).apply(self.graph))
        self._backend = backend

    def described(self) -> Answer:
        """All answers as plain data: proposals, refusals, and what is wrong with them."""
        signatures, before = Signatures(self.graph), tvm.ir.save_json(self.graph.func)
        odd = [reason for answer in self.answers if (reason := self._why_odd(answer))]
        answer = {
            "text": [repr(one) for one in self.answers],
            "proposals": [self._proposal(number, signatures) for number in self._sound()],
            "refusals": [self._refusal(one) for one in self.answers if isinstance(one, Declined)],
            "invalid": odd,
        }
        if tvm.ir.save_json(self.graph.func) != before:
            answer["invalid"].append("the rule has changed the function")
        return answer

    def kernel(self, number: int) -> relax.Function:
        """The function of a proposal, with large constants as its last parameters."""
        return kernel_function(self.graph, self.candidate(number), lift_constants=True)

    def candidate(self, number: int) -> Candidate:
        """A proposal as AnnotateCandidates writes it."""
        found = self.answers[number]
        assert isinstance(found, Found)
        return Candidate(
            id=number,
            backend=self._backend.name,
            rule=found.rule,
            label=found.label,
            indexes=tuple(members(found.inside)),
            hidden=tuple(members(found.hidden)),
            composites=tuple(CompositePart(part.label, tuple(members(part.inside))) for part in found.nested),
        )

    def _sound(self) -> Iterator[int]:
        for number, answer in enumerate(self.answers):
            if not isinstance(answer, Found) or self._why_odd(answer) is not None:
                continue
            if why_not_sized(answer.sub_graph(self.graph), self._backend) is None:
                yield number

    def _proposal(self, number: int, signatures: Signatures) -> Answer:
        func, candidate = self.kernel(number), self.candidate(number)
        results = len(func.ret_ty.fields) if isinstance(func.ret_ty, relax.TupleType) else 1
        return {
            "number": number,
            "label": candidate.label,
            "nodes": list(candidate.indexes),
            "digest": kernel_digest(signatures, self.graph, candidate),
            "results": results,
            "constants": int(func.attrs[LIFTED]),
        }

    def _refusal(self, declined: Declined) -> Answer:
        node = self.graph.nodes[declined.index] if declined.index in range(len(self.graph.nodes)) else None
        return {
            "index": declined.index,
            "op": "" if node is None or node.call is None else node.op,
            "reason": str(declined.reason),
            "problem": "there is no node with this index"
            if node is None
            else _why_no_reason(declined.reason),
        }

    def _why_odd(self, answer: Any) -> str | None:
        """Why an answer is not a valid answer of a rule, or None."""
        if not isinstance(answer, (Found, Declined)):
            return f"the rule yields a {type(answer).__name__}, neither Found nor Declined"
        if isinstance(answer, Declined):
            return None
        if not isinstance(answer.label, str) or not answer.label.strip():
            return f"a proposal has the label {answer.label!r}"
        if not 0 < answer.inside < 1 << len(self.graph.nodes):
            return f"{answer.label} covers nodes that do not exist"
        sub = answer.sub_graph(self.graph)
        reason = sub.why_not_valid(_ANY_SHAPE) or _why_no_operands(sub)
        return None if reason is None else f"{answer.label} is not a valid kernel: {reason}"


def _why_no_operands(sub: SubGraph) -> str | None:
    odd = (var for var in outside_vars(sub) if not isinstance(var.ty, relax.TensorType))
    return next((f"its operand {var.name} is not a tensor" for var in odd), None)


def _why_no_reason(reason: Any) -> str | None:
    if not isinstance(reason, str):
        return f"the reason is {reason!r}, not a text"
    return None if reason.strip() else "the reason is an empty text"
