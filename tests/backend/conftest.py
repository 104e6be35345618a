"""Which tests have the machine for themselves, and what is measured of the machine once for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from unity_collage.database.costs import CostDatabase
from unity_collage.machine import peaks

ALONE = frozenset(
    f"test_{name}"
    for name in (
        "ancestor_defects", "cli", "cli_json", "db_cli", "examples", "explain_cli", "guard", "lazy_measurement",
        "measured_cost", "late_programs", "page_code", "peers", "planted_transitions", "postgresql", "precision",
        "process_state", "refined_programs", "remote", "remote_devices", "schedule_branches",
        "timed_together", "tuning", "verify_cli",
    )
)  # fmt: skip
"""Files whose tests measure kernels or end processes, and need the machine for themselves: marked ``alone``."""

OF_THE_MACHINE = ("overheads ", "third-level cache", "peaks")
"""Facts that take four to eight seconds for each new database, by the beginnings of their names."""

MEASURED_APART = peaks.measured_apart

FASTEST = peaks.Machine(
    threads=2,
    flops=1e13,
    reads=((1 << 26, 1e13),),
    writes=((1 << 26, 1e13),),
    weights=((1 << 22, 1e13), (1 << 26, 1e13)),
)
"""Faster than any machine: a busy one may seem slower than it is a moment later."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem in ALONE:
            item.add_marker(pytest.mark.alone)


@pytest.fixture
def fastest_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peaks of this machine, which bounds need, are given: to measure them takes five seconds."""
    monkeypatch.setattr(peaks, "measured_apart", lambda _caches: FASTEST)


@pytest.fixture(scope="session", autouse=True)
def facts_of_the_machine() -> Iterator[None]:
    """A database that lacks a fact of the machine gets what a test before has measured, under the same fingerprint.

    There it is never doubtful: whatever else the machine does, it is not measured again.
    """
    measured: dict[tuple[str, str], Any] = {}
    fact, keep_fact = CostDatabase.fact, CostDatabase.keep_fact

    def is_real(name: str) -> bool:
        return name != "peaks" or peaks.measured_apart is MEASURED_APART

    def found(database: CostDatabase, name: str, fingerprint: str, *more: Any, **named: Any) -> Any | None:
        known = fact(database, name, fingerprint, *more, **named)
        if known is None and (name, fingerprint) in measured and is_real(name) and not database.read_only:
            keep_fact(database, name, fingerprint, measured[name, fingerprint])
            known = fact(database, name, fingerprint, *more, **named)
        return known

    def kept(database: CostDatabase, name: str, fingerprint: str, value: Any, *more: Any) -> None:
        keep_fact(database, name, fingerprint, value, *more)
        if name.startswith(OF_THE_MACHINE) and is_real(name):
            measured[name, fingerprint] = value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CostDatabase, "fact", found)
        patch.setattr(CostDatabase, "keep_fact", kept)
        yield
