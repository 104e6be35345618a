"""The one door between dataclasses and function attributes.

What a pass knows and a later one needs is written as str, int, float, list and dict, so that the script
shows it and parses back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tvm import ir, relax
from tvm_ffi import Array, Map

from .errors import MissingAnnotation
from .graph import DataflowGraph, Nested, SubGraph
from .index_set import index_set

T = TypeVar("T")


VIEW = "view"
"""In a backend's place: the bindings give back what they read, so they need no kernel and cost nothing."""


THREADS = "collage.threads"
"""Attribute of a kernel's function: so many threads of the pool run it; without, its backend decides, up to all."""


def threads_of(func: ir.BaseFunc) -> int | None:
    """What ``THREADS`` says of a function, None where it says nothing."""
    said = (func.attrs or {}).get(THREADS)
    return None if said is None else int(said)


@dataclass(frozen=True, slots=True)
class Candidate:
    """These bindings could be one kernel of this backend, or none where it is ``VIEW``."""

    id: int
    backend: str
    rule: str
    label: str
    indexes: tuple[int, ...]
    """Post-dfs indexes of the bindings."""
    hidden: tuple[int, ...] = ()
    """Those whose values others read too, and which this kernel computes for itself without writing them."""
    composites: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Parts of the kernel that its backend wants as functions of their own, as (label, indexes)."""
    threads: int | None = None
    """So many threads of the pool run the kernel; None: its backend decides, up to all."""

    @property
    def title(self) -> str:
        """The label, and how many threads there are if that is said."""
        return self.label if self.threads is None else f"{self.label} (threads: {self.threads})"

    def sub_graph(self, graph: DataflowGraph) -> SubGraph:
        parts = tuple(Nested(index_set(part), label) for label, part in self.composites)
        return SubGraph(graph, index_set(self.indexes), index_set(self.hidden), parts)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A backend looked at this binding and said no."""

    backend: str
    index: int
    reason: str
    condition: str = "predicate"
    """``predicate``, the word of the backend; ``validity``, the shape of the sub-graph; ``limit`` or ``target``."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The price of one kernel, in seconds a run, or why there is none."""

    seconds: float | None
    low: float = 0.0
    high: float = 0.0
    """The interval that the median lies in."""
    runs: int = 0
    origin: str = "measured"
    """``measured``, ``database``, ``formula``, ``UNKNOWN`` or ``IN_PROGRAM``."""
    reason: str = ""
    """Why there is no price; empty where there is one."""
    bound: float | None = None
    """Seconds that it costs at least, where it was not measured: it cannot matter, or there was no time."""


UNKNOWN = "unknown"
"""The origin of a cost that nobody has tried to find out, for want of time: the price may be any."""


IN_PROGRAM = "in the program"
"""The origin of a cost that the kernel has in the running program, among the others of its plan."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What EstimateCosts found for one function."""

    prices: dict[str, Cost] = field(default_factory=dict)
    """By cost key."""
    keys: dict[int, str] = field(default_factory=dict)
    """The cost key of each candidate, by its id."""
    launch_seconds: float = 0.0
    """What the VM pays to call one kernel, where ``launches`` does not say it."""
    launches: dict[str, float] = field(default_factory=dict)
    """The same by backend."""
    transitions: dict[str, float] = field(default_factory=dict)
    """Seconds for a value that one backend writes and another reads, by ``"writer>reader"``."""
    lower_bound: float | None = None
    """No plan of all candidates is cheaper, as far as a lazy search that has not measured all of them has proved."""


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
    data = {"id": c.id, "backend": c.backend, "rule": c.rule, "label": c.label, "bindings": list(c.indexes)}
    if c.hidden:
        data["hidden"] = list(c.hidden)
    if c.composites:
        data["composites"] = [{"label": label, "bindings": list(part)} for label, part in c.composites]
    if c.threads is not None:
        data["threads"] = c.threads
    return data


def _decode_candidate(data: dict[str, Any]) -> Candidate:
    return Candidate(
        id=int(data["id"]),
        backend=data["backend"],
        rule=data["rule"],
        label=data["label"],
        indexes=_indexes(data["bindings"]),
        hidden=_indexes(data.get("hidden", ())),
        composites=tuple((c["label"], _indexes(c["bindings"])) for c in data.get("composites", ())),
        threads=int(data["threads"]) if "threads" in data else None,
    )


def _indexes(data: Iterable[Any]) -> tuple[int, ...]:
    return tuple(int(index) for index in data)


def _encode_refusal(refusal: Refusal) -> dict[str, Any]:
    data = {"backend": refusal.backend, "binding": refusal.index, "reason": refusal.reason}
    return data if refusal.condition == "predicate" else data | {"condition": refusal.condition}


def _decode_refusal(data: dict[str, Any]) -> Refusal:
    return Refusal(data["backend"], int(data["binding"]), data["reason"], data.get("condition", "predicate"))


def _encode_cost(cost: Cost) -> dict[str, Any]:
    if cost.seconds is None:
        bound = {} if cost.bound is None else {"bound": cost.bound}
        return {"reason": cost.reason, "origin": cost.origin, **bound}
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
        bound=float(data["bound"]) if "bound" in data else None,
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
    lambda value: [_encode_refusal(refusal) for refusal in value],
    lambda data: tuple(_decode_refusal(refusal) for refusal in data),
)
COSTS: Annotation[Costs] = Annotation(
    "collage.costs",
    "EstimateCosts",
    lambda value: {
        "launch_seconds": value.launch_seconds,
        "launches": dict(value.launches),
        "transitions": dict(value.transitions),
        "prices": {key: _encode_cost(cost) for key, cost in value.prices.items()},
        "keys": {str(candidate): key for candidate, key in value.keys.items()},
        **({} if value.lower_bound is None else {"lower_bound": value.lower_bound}),
    },
    lambda data: Costs(
        {key: _decode_cost(cost) for key, cost in data["prices"].items()},
        {int(candidate): key for candidate, key in data["keys"].items()},
        float(data["launch_seconds"]),
        {name: float(seconds) for name, seconds in data.get("launches", {}).items()},
        {pair: float(seconds) for pair, seconds in data.get("transitions", {}).items()},
        float(data["lower_bound"]) if "lower_bound" in data else None,
    ),
)
PLAN: Annotation[dict[str, Any]] = Annotation(
    "collage.plan", "SearchPartition", lambda value: value, lambda data: data
)
