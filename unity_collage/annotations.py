"""The one door between dataclasses and function attributes.

What a pass knows and a later one needs is written as str, int, float, list and dict, so that the script
shows it and parses back to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tvm import relax
from tvm_ffi import Array, Map

from .errors import MissingAnnotation

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Candidate:
    """These bindings could be one kernel of this backend."""

    id: int
    backend: str
    rule: str
    label: str
    indexes: tuple[int, ...]
    """Post-dfs indexes of the bindings."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A backend looked at this binding and said no."""

    backend: str
    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class Cost:
    """The price of one kernel, in seconds a run, or why there is none."""

    seconds: float | None
    low: float = 0.0
    high: float = 0.0
    """The interval that the median lies in."""
    runs: int = 0
    origin: str = "measured"
    """``measured``, ``database`` or ``formula``."""
    reason: str = ""
    """Why there is no price; empty where there is one."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What EstimateCosts found for one function."""

    prices: dict[str, Cost] = field(default_factory=dict)
    """By cost key."""
    keys: dict[int, str] = field(default_factory=dict)
    """The cost key of each candidate, by its id."""
    launch_seconds: float = 0.0
    """What the VM pays to call one kernel."""


class Annotation(Generic[T]):
    """One attribute of a function and its translation."""

    def __init__(
        self, name: str, writer: str, encode: Callable[[T], Any], decode: Callable[[Any], T]
    ) -> None:
        self.name = name
        self._writer = writer
        self._encode = encode
        self._decode = decode

    def on(self, func: relax.Function) -> bool:
        """Whether ``func`` carries it."""
        return bool(func.attrs) and self.name in func.attrs

    def read(self, func: relax.Function) -> T:
        """Its value; raises MissingAnnotation that names the pass to run."""
        if not self.on(func):
            raise MissingAnnotation(f"no {self.name} on this function: run {self._writer} first")
        return self._decode(plain(func.attrs[self.name]))

    def write(self, func: relax.Function, value: T) -> relax.Function:
        """A copy of ``func`` that carries ``value``."""
        return func.with_attr(self.name, self._encode(value))


def plain(value: Any) -> Any:
    """FFI containers as Python's own."""
    if isinstance(value, Map) or hasattr(value, "items"):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (Array, list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bool | int | float):
        return value
    inner = getattr(value, "value", value)
    return str(inner) if isinstance(inner, str) else inner


def _encode_candidate(c: Candidate) -> dict[str, Any]:
    bindings = list(c.indexes)
    return {"id": c.id, "backend": c.backend, "rule": c.rule, "label": c.label, "bindings": bindings}


def _decode_candidate(data: dict[str, Any]) -> Candidate:
    indexes = tuple(int(index) for index in data["bindings"])
    return Candidate(int(data["id"]), data["backend"], data["rule"], data["label"], indexes)


def _encode_cost(cost: Cost) -> dict[str, Any]:
    if cost.seconds is None:
        return {"reason": cost.reason, "origin": cost.origin}
    return {
        "seconds": cost.seconds,
        "low": cost.low,
        "high": cost.high,
        "runs": cost.runs,
        "origin": cost.origin,
    }


def _decode_cost(data: dict[str, Any]) -> Cost:
    return Cost(
        seconds=float(data["seconds"]) if "seconds" in data else None,
        low=float(data.get("low", 0.0)),
        high=float(data.get("high", 0.0)),
        runs=int(data.get("runs", 0)),
        origin=data.get("origin", "measured"),
        reason=data.get("reason", ""),
    )


CANDIDATES: Annotation[tuple[Candidate, ...]] = Annotation(
    "collage.candidates",
    "AnnotateCandidates",
    lambda value: [_encode_candidate(candidate) for candidate in value],
    lambda data: tuple(_decode_candidate(candidate) for candidate in data),
)
DECLINED: Annotation[tuple[Refusal, ...]] = Annotation(
    "collage.declined",
    "AnnotateCandidates",
    lambda value: [{"backend": r.backend, "binding": r.index, "reason": r.reason} for r in value],
    lambda data: tuple(Refusal(r["backend"], int(r["binding"]), r["reason"]) for r in data),
)
COSTS: Annotation[Costs] = Annotation(
    "collage.costs",
    "EstimateCosts",
    lambda value: {
        "launch_seconds": value.launch_seconds,
        "prices": {key: _encode_cost(cost) for key, cost in value.prices.items()},
        "keys": {str(candidate): key for candidate, key in value.keys.items()},
    },
    lambda data: Costs(
        {key: _decode_cost(cost) for key, cost in data["prices"].items()},
        {int(candidate): key for candidate, key in data["keys"].items()},
        float(data["launch_seconds"]),
    ),
)
PLAN: Annotation[dict[str, Any]] = Annotation(
    "collage.plan", "SearchPartition", lambda value: value, lambda data: data
)
