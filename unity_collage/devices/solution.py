"""The places of a module's values, solved from its facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from tvm import relax
from tvm.target import Target

from ..errors import CollageError
from ..plan.placed import ID, KIND, PARTS, SCOPE, TARGET, FreelyPlaced
from .facts import PlacingFacts
from .solver import members
from .table import GLOBAL, DevicePlace
from .trees import leaves


@dataclass(slots=True)
class PlacedValues:
    """A place for each leaf of ``facts``."""

    facts: PlacingFacts
    default: DevicePlace
    _places: dict[int, DevicePlace] = field(default_factory=dict)
    """The device of each class, by the leaf that stands for it."""
    _devices: dict[tuple[int, int], relax.VDevice] = field(default_factory=dict)
    written: set[relax.Var] = field(default_factory=set)
    """The variables that the planned module keeps; others have become another name for a value."""
    _copies: list[tuple[str, int, str, tuple[str, ...]]] = field(default_factory=list)

    def device(self, leaf: int) -> relax.VDevice:
        """The VDevice of a leaf: the entry of the module's list."""
        devices, scopes = self.facts.devices.root(leaf), self.facts.scopes.root(leaf)
        if (devices, scopes) not in self._devices:
            place = self._places[devices]
            claim = self.facts.scopes.claims(leaf).get(SCOPE)
            scope = GLOBAL if claim is None else str(claim.value)
            whole = DevicePlace(place.kind, place.target, place.device_id, scope)
            self._devices[devices, scopes] = self.facts.table.vdevice(whole)
        return self._devices[devices, scopes]

    def index(self, leaf: int) -> int:
        """The position of a leaf's VDevice in the module's list."""
        return cast(int, self.facts.table.index(self.device(leaf)))

    def free(self, leaf: int) -> tuple[str, ...]:
        """The parts of a leaf's place that no annotation specifies."""
        claims = {**self.facts.devices.claims(leaf), **self.facts.scopes.claims(leaf)}
        return tuple(part for part in PARTS if part not in claims or claims[part].derived)

    def record_copy(self, function: str, leaf: int, name: str, literal: bool) -> None:
        """A copy to ``leaf`` got this name.

        A value that a rule of this package has placed may move later only if it is a literal.
        """
        claims = {**self.facts.devices.claims(leaf), **self.facts.scopes.claims(leaf)}
        free = self.free(leaf) if literal else tuple(part for part in PARTS if part not in claims)
        self._copies.append((function, leaf, name, free))

    def freely_placed(self, function: str) -> tuple[FreelyPlaced, ...]:
        """The entries of a function's attribute for its variables and its result."""
        groups: dict[tuple[int, tuple[str, ...]], list[str]] = {}
        every = self.facts.all_leaves
        named = [(every[leaf].function, leaf, every[leaf].name, self.free(leaf)) for leaf in self._named()]
        for owner, leaf, name, free in (*named, *self._copies):
            if owner == function and free:
                groups.setdefault((self.index(leaf), free), []).append(name)
        return tuple(
            FreelyPlaced(on, free, tuple(sorted(set(names)))) for (on, free), names in sorted(groups.items())
        )

    def _named(self) -> Iterator[int]:
        for var, tree in self.facts.trees.items():
            if var in self.written:
                yield from leaves(tree)
        for owner, signature in self.facts.signatures.items():
            if isinstance(owner, relax.GlobalVar):
                yield from leaves(signature.result)


def solved(facts: PlacingFacts, default: DevicePlace) -> PlacedValues:
    """Apply the preferences, then the defaults; raises CollageError for a device without a target."""
    for first, second, reason in facts.soft_devices:
        facts.devices.unify(first, second, reason)
    _to_host(facts)
    solution = PlacedValues(facts, default)
    for leaf in range(len(facts.all_leaves)):
        if facts.devices.root(leaf) == leaf:
            solution._places[leaf] = _completed(facts, leaf, default)
    _prefer_scopes(facts, solution)
    for first, second, reason in facts.boundaries:
        # Without a copy there is one value, which has to stay at the place of the hint in later plans.
        if solution.device(first) is solution.device(second):
            facts.devices.unify(first, second, reason)
            facts.scopes.unify(first, second, reason)
    return solution


def _to_host(facts: PlacingFacts) -> None:
    """Values like shapes and conditions that only the host reads or makes are on the host."""
    classes = members(facts.devices, range(len(facts.all_leaves)))
    for leaf in facts.on_host:
        root = facts.devices.root(leaf)
        if all(facts.all_leaves[each].small for each in classes[root]) and not facts.devices.claims(leaf):
            facts.claim(leaf, _device_of(facts.table.host), "the host reads or makes it", derived=True)


def _device_of(place: DevicePlace) -> dict[str, object]:
    return {part: value for part, value in place.parts().items() if part != SCOPE}


def _completed(facts: PlacingFacts, leaf: int, default: DevicePlace) -> DevicePlace:
    claims = facts.devices.claims(leaf)
    values = {part: claim.value for part, claim in claims.items()}
    place = DevicePlace(
        cast("int | None", values.get(KIND)),
        cast("Target | None", values.get(TARGET)),
        cast("int | None", values.get(ID)),
    )
    made = facts.table.completed(place, default)
    if made is None:
        raise CollageError(
            f"{claims[KIND].text}, and no target is of this kind: add one to the targets of PlanDevices, "
            "or an I.vdevice to the module"
        )
    return made


def _prefer_scopes(facts: PlacingFacts, solution: PlacedValues) -> None:
    for first, second, reason in facts.soft_scopes:
        a, b = (solution._places[facts.devices.root(leaf)] for leaf in (first, second))
        if (str(a.target), a.device_id) == (str(b.target), b.device_id):
            facts.scopes.unify(first, second, reason)
