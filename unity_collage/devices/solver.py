"""Union-find with reasons: values that have to be together, the claims about them, and why two claims disagree."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

Join = Callable[[str, Any, Any], Any]
"""The join of two values of a part, or None where they disagree."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of an annotation about one ``part`` of a leaf's place."""

    part: str
    value: Hashable
    leaf: int
    text: str
    """The annotation and what it says, for messages."""
    derived: bool = False
    """Whether the claim is from a rule of this package, not from an annotation; a later plan derives it again."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two claims about leaves that have to be together."""

    claims: tuple[Claim, Claim]
    path: tuple[int, ...]
    """The leaves from the first claim's to the second's."""
    reasons: tuple[str, ...]
    """Why each leaf of the path has to be with the next one."""


@dataclass(slots=True)
class Unifier:
    """Classes of leaves 0, 1, ... with at most one claim for each part."""

    join: Join
    _parent: list[int] = field(default_factory=list)
    _claims: list[dict[str, Claim]] = field(default_factory=list)
    _near: list[list[tuple[int, str]]] = field(default_factory=list)

    def add(self) -> int:
        """A new leaf, alone in its class."""
        self._parent.append(len(self._parent))
        self._claims.append({})
        self._near.append([])
        return len(self._parent) - 1

    def root(self, leaf: int) -> int:
        """The leaf that stands for the class of ``leaf``."""
        while self._parent[leaf] != leaf:
            self._parent[leaf] = self._parent[self._parent[leaf]]
            leaf = self._parent[leaf]
        return leaf

    def claims(self, leaf: int) -> dict[str, Claim]:
        """What is claimed of the class of ``leaf``, by part."""
        return self._claims[self.root(leaf)]

    def claim(self, claim: Claim) -> Disagreement | None:
        """Claim a part of a leaf's class, or say which claim disagrees."""
        known = self.claims(claim.leaf)
        merged = self._merged({claim.part: claim}, known)
        if isinstance(merged, Disagreement):
            return merged
        known.update(merged)
        return None

    def unify(self, first: int, second: int, reason: str) -> Disagreement | None:
        """Put two leaves into one class, or say which claims disagree; then nothing has changed."""
        a, b = self.root(first), self.root(second)
        if a == b:
            return None
        self._near[first].append((second, reason))
        self._near[second].append((first, reason))
        merged = self._merged(self._claims[b], self._claims[a])
        if isinstance(merged, Disagreement):
            self._near[first].pop()
            self._near[second].pop()
            return merged
        low, high = sorted((a, b))
        self._parent[high] = low
        self._claims[low] = merged
        return None

    def _merged(self, new: dict[str, Claim], known: dict[str, Claim]) -> dict[str, Claim] | Disagreement:
        merged = dict(known)
        for part, claim in new.items():
            old = known.get(part)
            if old is None:
                merged[part] = claim
                continue
            value = self.join(part, old.value, claim.value)
            if value is None:
                return self._disagreement(old, claim)
            keeps = value == old.value and (claim.derived or not old.derived)
            merged[part] = old if keeps else claim
        return merged

    def _disagreement(self, old: Claim, new: Claim) -> Disagreement:
        before: dict[int, tuple[int, str]] = {}
        waiting, seen = deque([old.leaf]), {old.leaf}
        while waiting:
            leaf = waiting.popleft()
            for other, reason in self._near[leaf]:
                if other not in seen:
                    seen.add(other)
                    before[other] = (leaf, reason)
                    waiting.append(other)
        path, reasons = [new.leaf], list[str]()
        while path[-1] in before:
            leaf, reason = before[path[-1]]
            path.append(leaf)
            reasons.append(reason)
        return Disagreement((old, new), tuple(reversed(path)), tuple(reversed(reasons)))


def members(unifier: Unifier, leaves: Sequence[int]) -> dict[int, list[int]]:
    """The leaves of each class, by the leaf that stands for it."""
    found: dict[int, list[int]] = {}
    for leaf in leaves:
        found.setdefault(unifier.root(leaf), []).append(leaf)
    return found
