"""The messages between the two ends of a session: JSON texts, and the values in them."""

from __future__ import annotations

import socket
from importlib.util import find_spec
from typing import Any

from ...database.rows import FailureKind
from ...plan.costs import Cost
from ..client import Answer
from ..refusal import Refusal

FUNCTION = "collage.remote.answer"
"""The global function of a server: it takes the text of a request and returns the text of the reply."""

RUN = "collage.remote.run"
"""The global function of a server that runs a program: it takes the name of the uploaded file without its ending, the
number of inputs, the inputs, and buffers for the results. It returns the reason why it failed, or an empty text."""

_CONNECT_SECONDS = 5.0

_NEEDED = ("tornado", "psutil", "cloudpickle")


def why_unavailable() -> str | None:
    """Why no tracker and no server can run in this Python, or None; imports nothing. A client needs none of it."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    return f"{' and '.join(missing)} missing: pip install 'unity_collage[rpc]'" if missing else None


def address(text: str) -> tuple[str, int]:
    """``host:port``; raises ValueError for anything else."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"{text!r} is not the address of a tracker: write host:port")
    return host, int(port)


def why_no_tracker(text: str) -> str | None:
    """Why nothing answers at the ``host:port`` of a tracker, or None; it is asked once, for a few seconds."""
    try:
        socket.create_connection(address(text), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        return f"no tracker answers at {text}: {error.strerror or error}: start one with python -m tvm.exec.rpc_tracker"
    return None


def encoded(answer: Answer) -> dict[str, Any]:
    """``answer`` as JSON data."""
    if isinstance(answer, Refusal):
        kind = None if answer.kind is None else answer.kind.value
        return {"reason": answer.reason, "kind": kind, "lasting": answer.lasting, "late": answer.is_late}
    fields = ("seconds", "low", "high", "runs", "is_doubtful")
    return {name: getattr(answer, name) for name in fields}


def decoded(data: dict[str, Any]) -> Answer:
    """The answer that :func:`encoded` encoded."""
    return refusal_in(data) or Cost(**data)


def refusal_in(data: dict[str, Any]) -> Refusal | None:
    """The refusal in data of :func:`encoded`, or None if it has no reason."""
    if "reason" not in data:
        return None
    kind = None if data["kind"] is None else FailureKind(data["kind"])
    return Refusal(data["reason"], kind, data["lasting"], is_late=data.get("late", False))
