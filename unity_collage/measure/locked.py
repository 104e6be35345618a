"""The messages for what is missing in a locked database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from sqlalchemy import select

from ..cost.model import Workload
from ..database.costs import CostDatabase
from ..database.schema import COSTS, FACTS
from ..machine.fingerprint import differences

_NAMED = 3
"""How many missing costs are named; the others are counted."""


def missing_costs(
    database: CostDatabase, missing: Sequence[Workload], fingerprint: Callable[[str], str]
) -> str:
    """How many costs are missing, of which kernels, and whether the database has them with another fingerprint.

    ``fingerprint`` returns the text of a backend's fingerprint here.
    """
    named = list(dict.fromkeys(f"{workload.backend} {workload.label}" for workload in missing))
    count = "1 cost is" if len(missing) == 1 else f"{len(missing)} costs are"
    more = f" and {len(named) - _NAMED} more kinds" if len(named) > _NAMED else ""
    text = f"{count} not in {database.name}, and it is locked: {', '.join(named[:_NAMED])}{more}"
    return text + _elsewhere(database, missing, fingerprint)


def _elsewhere(database: CostDatabase, missing: Sequence[Workload], fingerprint: Callable[[str], str]) -> str:
    """The fields in which the most frequent fingerprint of the missing costs differs from ours."""
    backends, texts = {workload.key: workload.backend for workload in missing}, database.fingerprints()
    with database.reading() as connection:
        rows = connection.execute(select(COSTS.c.key, COSTS.c.fingerprint))
        found = [
            (row.key, row.fingerprint) for row in rows if row.key in backends and row.fingerprint in texts
        ]
    if not found:
        return ""
    there = Counter(digest for _, digest in found).most_common(1)[0][0]
    backend = next(backends[key] for key, digest in found if digest == there)
    how = _how(fingerprint(backend), texts[there])
    return f"; {len({key for key, _ in found})} of them were measured with another fingerprint: {how}"


def missing_fact(database: CostDatabase, name: str, what: str, fingerprint: str) -> str:
    """That a fact is missing, and whether the database has it with another fingerprint; ``what`` names it."""
    text = f"{what} are not in {database.name}, and it is locked"
    texts = database.fingerprints()
    with database.reading() as connection:
        rows = connection.execute(select(FACTS.c.fingerprint).where(FACTS.c.name == name))
        there = [row.fingerprint for row in rows if row.fingerprint in texts]
    if not there:
        return text
    return f"{text}; they were measured with another fingerprint: {_how(fingerprint, texts[there[0]])}"


def _how(here: str, there: str) -> str:
    """The fields in which two fingerprints differ."""
    return "; ".join(
        f"{name} is {_own(ours, theirs)} here, {_own(theirs, ours)} there"
        for name, (ours, theirs) in differences(here, there).items()
    )


def _own(value: str, other: str) -> str:
    """The words of ``value`` that are not in ``other``, so that only the difference of a long target is shown."""
    others = _words(other)
    return " ".join(word for word in _words(value) if word not in others) or "nothing"


def _words(value: str) -> list[str]:
    return [word.strip("{}") for word in value.replace(",", " ").split()]
