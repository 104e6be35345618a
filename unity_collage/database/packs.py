"""Packs: costs of one machine, as a small file for other machines with a processor of the same family.

A pack is a JSON document, compressed by gzip. It names no machine: its costs are stored under fingerprints of the
processor's family (:func:`unity_collage.cost.fingerprint.of_family`). A machine that uses a pack checks whether its
costs hold there (:mod:`unity_collage.measure.packed`).
"""

from __future__ import annotations

import gzip
import json
import logging
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ..errors import DatabaseError
from ..plan.costs import PACKED, Cost
from .costs import CostDatabase
from .rows import digest

LOGGER = logging.getLogger(__name__)

FOLDER = Path(__file__).resolve().parent.parent / "packs"
"""The packs that come with this package."""

_HEADER = {"unity_collage": "pack", "format": 1}
_FACTS = "packs: of any machine"
"""The fingerprint of the facts that are packs; their names are those of the packs."""
_DIGITS = 4
"""Costs are measured to two percent, so more digits would be noise that does not compress."""

Entry = list[float] | str
"""``[seconds, low, high, runs]``, or the reason why there is no cost."""


@dataclass(frozen=True, slots=True)
class CostPack:
    """Costs and lasting refusals of one machine, and its peaks."""

    entries: Mapping[str, Mapping[str, Entry]]
    """By key, by the fingerprint of the family that they hold for."""
    peaks: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of :mod:`unity_collage.machine.peaks`, by the fingerprint of the family."""

    @property
    def name(self) -> str:
        """A short digest of all that is in it."""
        return digest(_text(self.content))

    @property
    def content(self) -> dict[str, Any]:
        """All of it as JSON data."""
        return {"costs": self.entries, "peaks": self.peaks}

    def __len__(self) -> int:
        """The number of costs and refusals."""
        return sum(map(len, self.entries.values()))

    def get(self, key: str, fingerprint: str) -> Cost | None:
        """The cost or refusal with origin ``pack``; None: it is not in the pack."""
        entry = self.entries.get(fingerprint, {}).get(key)
        if entry is None:
            return None
        if isinstance(entry, str):
            return Cost(None, origin=PACKED, reason=entry)
        seconds, low, high, runs = entry
        return Cost(seconds, low, high, int(runs), PACKED)


def made(database: CostDatabase, families: Mapping[str, str], peaks: Mapping[str, Any]) -> CostPack:
    """The sure costs and lasting refusals in ``database`` that this machine has measured.

    ``families``: the fingerprint of the family by the fingerprint of this machine's costs, of each backend.
    """
    found: dict[str, dict[str, Entry]] = {}
    by_digest = {digest(here): family for here, family in families.items()}
    for row in database.costs():
        if row.fingerprint not in by_digest or row.doubtful or not row.lasting:
            continue
        numbers = (
            None if row.seconds is None else [*map(_rounded, (row.seconds, row.low, row.high)), row.runs]
        )
        found.setdefault(by_digest[row.fingerprint], {})[row.key] = numbers or row.reason
    return CostPack(found, peaks)


def to_bytes(pack: CostPack) -> bytes:
    """The contents of the file; equal packs make equal files."""
    return gzip.compress(_text({**_HEADER, **pack.content}).encode(), mtime=0)


def from_bytes(data: bytes, name: str) -> CostPack:
    """The pack in a file's contents; raises DatabaseError with the file's ``name`` where it is none."""
    try:
        content = json.loads(gzip.decompress(data))
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DatabaseError(f"{name} is not a pack of costs: db export --pack writes one") from error
    parts = cast(dict[str, Any], content) if isinstance(content, dict) else {}
    if {key: parts.get(key) for key in _HEADER} != _HEADER:
        raise DatabaseError(f"{name} is not a pack of costs that this version of unity_collage can read")
    return _checked(parts, name)


def read(path: Path) -> CostPack:
    """The pack in a file; raises DatabaseError in one line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DatabaseError(f"{path} cannot be read: {error.strerror}") from error
    return from_bytes(data, str(path))


def keep(database: CostDatabase, pack: CostPack) -> None:
    """Store a pack in ``database``, apart from the costs that were measured for it."""
    database.keep_fact(pack.name, _FACTS, pack.content)


def kept(database: CostDatabase) -> Iterator[CostPack]:
    """The packs in ``database``."""
    for content in database.facts(_FACTS).values():
        yield _checked(content, database.name)


def shipped(folder: Path = FOLDER) -> Iterator[CostPack]:
    """The packs in ``folder``, by name of their files; one that cannot be read is left out with a warning."""
    for path in sorted(folder.glob("*.pack")):
        try:
            yield read(path)
        except DatabaseError as error:
            LOGGER.warning("%s", error)


def _checked(content: Mapping[str, Any], name: str) -> CostPack:
    """The pack with this content; raises DatabaseError where an entry is neither a cost nor a reason."""
    for what in ("costs", "peaks"):
        if not _is_by_fingerprint(content.get(what)):
            raise DatabaseError(
                f"{name} is a damaged pack, so write it again: it has no {what} by fingerprint"
            )
    entries = cast(dict[str, dict[str, Any]], content["costs"])
    for costs in entries.values():
        if (key := next((key for key, entry in costs.items() if not _is_entry(entry)), None)) is not None:
            raise DatabaseError(
                f"{name} is a damaged pack, so write it again: {key} cannot cost {costs[key]!r}"
            )
    return CostPack(entries, cast(dict[str, Any], content["peaks"]))


def _is_by_fingerprint(part: Any) -> bool:
    return type(part) is dict and all(type(each) is dict for each in cast(dict[str, Any], part).values())


def _is_entry(entry: Any) -> bool:
    if isinstance(entry, str):
        return bool(entry)
    if not isinstance(entry, list) or len(cast(list[Any], entry)) != 4:
        return False
    numbers = cast(list[Any], entry)
    if not all(type(number) in (int, float) and math.isfinite(number) for number in numbers):
        return False
    return numbers[0] > 0 and all(number >= 0 for number in numbers)


def _text(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.{_DIGITS}g}")
