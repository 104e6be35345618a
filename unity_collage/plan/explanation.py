"""Explanation: for every candidate of a function, why it became a kernel or why not, as plain data.

What a candidate would have cost is its *best-through* cost: that of the cheapest valid plan that contains it. Its
*regret* is that minus the cost of the plan chosen, so much would its price alone have to fall
for it to win its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from ..annotations import Annotation, Cost


class Verdict(str, Enum):
    """What became of a candidate."""

    CHOSEN = "chosen"
    RUNNER_UP = "runner-up"
    """In the cheapest plan without some chosen kernel."""
    DEARER = "dearer"
    NO_PLAN = "in no plan"
    """It has a price, but no valid plan contains it."""
    NO_PRICE = "no price"
    NOT_MEASURED = "not measured"
    """A lower bound of its price showed that it cannot matter, or the budget was spent."""


@dataclass(frozen=True, slots=True)
class Binding:
    """One binding of the function that was partitioned."""

    name: str
    op: str
    type: str
    """``float32 (1, 56, 56, 64)``, as far as it is known."""
    host: bool = False
    """Whether the VM evaluates it by itself, for free."""


@dataclass(frozen=True, slots=True)
class Price:
    """What one distinct workload costs on one backend; equal candidates share it."""

    key: str
    seconds: float | None = None
    low: float = 0.0
    high: float = 0.0
    """The interval that the median lies in."""
    runs: int = 0
    origin: str = ""
    reason: str = ""
    """Why there is none; empty where there is one."""
    bound: float | None = None
    """Seconds that it costs at least, where that was enough to know."""

    @classmethod
    def of(cls, key: str, cost: Cost) -> Price:
        return cls(key, cost.seconds, cost.low, cost.high, cost.runs, cost.origin, cost.reason, cost.bound)


@dataclass(frozen=True, slots=True)
class Bid:
    """One candidate and what became of it; the number of a bid is its candidate's id."""

    id: int
    backend: str
    rule: str
    label: str
    bindings: tuple[int, ...]
    price: int
    """Which of the prices is its own."""
    verdict: Verdict
    best_through: float | None = None
    """Seconds of the cheapest plan with it; None if there is none or it has no price."""
    regret: float | None = None
    """Seconds by which that is dearer than the plan chosen."""
    exact: bool = True
    """False: both are at least that much."""
    saved: float | None = None
    """The part of its price that had to go for it to win here; 1 or more: it could not win even at no cost."""
    within_noise: bool = False
    """Whether the ends of the measured intervals would make it as cheap as the kernels it competes with."""
    hidden: tuple[int, ...] = ()
    """Bindings that it computes for itself though others read them too."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of the plan."""

    bid: int
    function: str = ""
    """The function that it was outlined as, if it was."""
    reads: tuple[int, ...] = ()
    """The kernels, by number, whose values it reads."""
    runner_up: int | None = None
    """The bid in the cheapest plan without this kernel."""
    margin: float | None = None
    """Seconds by which that plan is dearer, hence by which the kernel may become dearer; None: it has no rival."""
    exact: bool = True
    """False: the margin is at least that much."""
    rivals: tuple[int, ...] = ()
    """All priced bids that share a binding with it, by regret."""
    ties: tuple[tuple[int, ...], ...] = ()
    """Bids that are as cheap as far as the measurements tell, each with those that stand in its place together."""


@dataclass(frozen=True, slots=True)
class Declined:
    """A backend refused these bindings for this reason."""

    backend: str
    reason: str
    bindings: tuple[int, ...]
    condition: str = "predicate"
    """``predicate``, the backend's own word; ``validity``, the shape of the sub-graph; ``limit`` or ``target``."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of the plan as a whole."""

    seconds: float
    lower_bound: float
    """No valid plan is cheaper."""
    gap: float
    """How much dearer than the lower bound the plan is at most, as a part of its cost."""
    proved: bool
    algorithm: str
    visited: int = 0
    launch_seconds: float = 0.0
    """Charged for every kernel."""
    tie_seconds: float = 0.0
    """By so much the plan is dearer than the cheapest one, by ties that the policy has settled."""


@dataclass(frozen=True)
class Explanation:
    """Everything that was decided about one function."""

    proof: Proof
    bindings: tuple[Binding, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    """In the order in which they run."""
    bids: tuple[Bid, ...] = ()
    prices: tuple[Price, ...] = ()
    declined: tuple[Declined, ...] = ()
    left_behind: tuple[int, ...] = field(default=())
    """Bindings in no kernel: views that cost nothing, and operators that TVM compiles as they are."""

    @cached_property
    def by_id(self) -> dict[int, Bid]:
        return {bid.id: bid for bid in self.bids}

    def price(self, bid: Bid) -> Price:
        return self.prices[bid.price]

    def seconds(self, kernel: Kernel) -> float:
        """What the kernel costs a run, without its launch."""
        return self.price(self.by_id[kernel.bid]).seconds or 0.0

    def names(self, indexes: tuple[int, ...]) -> str:
        return ", ".join(self.bindings[index].name for index in indexes)


def encode(value: Any) -> Any:
    """Dataclasses as dicts of str, int, float and list; what has its default value is left out."""
    if is_dataclass(value):
        shown = ((item.name, getattr(value, item.name), item.default) for item in fields(value))
        return {name: encode(content) for name, content, default in shown if content != default}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    return value.value if isinstance(value, Enum) else value


def decode(data: Mapping[str, Any]) -> Explanation:
    """What :func:`encode` made of an explanation."""
    return Explanation(
        proof=Proof(**data["proof"]),
        bindings=tuple(Binding(**item) for item in data.get("bindings", ())),
        kernels=_items(Kernel, data, "kernels"),
        bids=_items(Bid, data, "bids"),
        prices=tuple(Price(**item) for item in data.get("prices", ())),
        declined=_items(Declined, data, "declined"),
        left_behind=tuple(data.get("left_behind", ())),
    )


def _items(kind: Any, data: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    return tuple(kind(**{key: _decoded(key, item[key]) for key in item}) for item in data.get(name, ()))


def _decoded(key: str, value: Any) -> Any:
    if key == "verdict":
        return Verdict(value)
    return tuple(_decoded(key, item) for item in value) if isinstance(value, list) else value


EXPLANATION: Annotation[Explanation] = Annotation(
    "collage.explanation", "SearchPartition(explain=True)", encode, decode
)
