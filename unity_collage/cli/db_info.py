"""What ``unity-collage db info --json`` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..cost.fingerprint import available
from ..cost.method import Method
from ..database.costs import CostDatabase, CostRow
from ..database.rows import digest
from .db_kept import kept_told
from .db_packs import packs_told


def info_as_data(
    database: CostDatabase, costs: Sequence[CostRow], facts: Sequence[Mapping[str, Any]], fingerprints: bool
) -> dict[str, Any]:
    """The contents of a database; ``fingerprints``: with the texts of fingerprints, and how many rows have each."""
    found: dict[str, Any] = {
        "database": database.name,
        "costs": sum(cost.seconds is not None for cost in costs),
        "refusals": sum(cost.seconds is None for cost in costs),
        "doubtful": sum(cost.doubtful for cost in costs),
        "facts": len(facts),
        "backends": [_of_backend(name, costs) for name in sorted({cost.backend for cost in costs})],
        "quarantine": database.quarantine_entries(),
        "remarks": [*packs_told(database), *kept_told(database)],
    }
    if fingerprints:
        here = frozenset(map(digest, available(Method()).values()))
        texts, counts = database.fingerprints(), Counter(cost.fingerprint for cost in costs)
        found["fingerprints"] = [
            {"digest": name, "rows": rows, "here": name in here, "text": texts.get(name, "")}
            for name, rows in counts.most_common()
        ]
    return found


def _of_backend(name: str, costs: Sequence[CostRow]) -> dict[str, Any]:
    of_it = [cost for cost in costs if cost.backend == name]
    costed, created = sum(cost.seconds is not None for cost in of_it), [cost.created for cost in of_it]
    return {
        "name": name,
        "costs": costed,
        "refusals": len(of_it) - costed,
        "oldest": min(created),
        "newest": max(created),
    }
