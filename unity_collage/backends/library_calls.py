"""Library calls inside TVM's kernels: which label of a sub-graph becomes which call.

A ``Primitive`` function, which TVM compiles, may call a function with the attribute ``Composite``. A library may
compute that one (the Collage RFC, "easier library integration"). The kernel then has TVM's loops before and behind the
call, which is an opaque block for schedules and for MetaSchedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx

from ..errors import CollageError

Shim = Callable[[Sequence[tirx.Buffer], Sequence[tirx.Buffer], "tirx.Buffer | None"], Any]
"""From the operands, the results and the workspace to the call: a statement, or an expression such as
``tirx.call_packed(name, a, b, c)`` or ``tirx.call_extern(type, symbol, ...)``."""


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """How a labelled sub-graph is computed by a call inside a kernel."""

    label: str
    """The value of ``Composite``."""
    shim: Shim
    workspace: Callable[[relax.Function], int] = lambda _func: 0
    """How many bytes the call needs besides its operands and results; 0: the shim gets None."""


_calls: dict[str, LibraryCall] = {}


def register_library_call(call: LibraryCall) -> None:
    """Sub-graphs with the label of ``call`` become this call; raises CollageError if the label has another one."""
    if _calls.setdefault(call.label, call) != call:
        raise CollageError(f"the label {call.label!r} has a library call already: unregister it first")


def unregister_library_call(label: str) -> None:
    """Forget the call of a label, if it has one."""
    _calls.pop(label, None)


def calls_of_users() -> list[str]:
    """The labels with calls that are not from this package."""
    own = __name__.partition(".")[0]
    return [label for label, call in _calls.items() if call.shim.__module__.partition(".")[0] != own]


def library_call(label: str) -> LibraryCall | None:
    """The call of a label, or None."""
    return _calls.get(label)
