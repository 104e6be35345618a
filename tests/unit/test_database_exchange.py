"""Carrying costs between databases, comparing two, and throwing old ones away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unity_collage.cost.fingerprint import stale
from unity_collage.database import schema
from unity_collage.database.compare import compare
from unity_collage.database.costs import CostDatabase, CostRow, FailureKind
from unity_collage.database.exchange import Contents, contents, from_lines, merge, to_lines
from unity_collage.database.prune import Prune, doomed, remove
from unity_collage.database.rows import digest
from unity_collage.database.upsert import put_row
from unity_collage.errors import DatabaseError
from unity_collage.machine.fingerprint import differences, fields_of
from unity_collage.plan.costs import Cost

HERE = "backend: onednn\nversion: 3.2\nthreads: 2"


def row(
    key: str = "onednn:a:L2", seconds: float | None = 1e-6, created: float = 100.0, **others: Any
) -> dict[str, Any]:
    """A row of the costs."""
    reason = "" if seconds is not None else "wrong numbers"
    return {"key": key, "fingerprint": digest(HERE), "label": "relu", "backend": "onednn", "seconds": seconds,
            "low": 0.0, "high": 0.0, "runs": 3, "reason": reason, "lasting": True,
            "workload": digest("text"), "doubtful": False,
            "created": created, **others}  # fmt: skip


def entry(
    version: str = "3.2", kind: FailureKind = FailureKind.CRASH, created: float = 100.0
) -> dict[str, Any]:
    return {"key": "onednn:b:L2", "version": version, "label": "conv2d", "backend": "onednn", "kind": kind.value,
            "reason": "SIGSEGV", "created": created}  # fmt: skip


def made(path: Path, *costs: dict[str, Any], quarantine: tuple[dict[str, Any], ...] = ()) -> CostDatabase:
    database = CostDatabase(path)
    with database.writing() as connection:
        for one in costs:
            put_row(connection, schema.COSTS, one)
        for one in quarantine:
            put_row(connection, schema.QUARANTINE, one)
        put_row(connection, schema.FINGERPRINTS, {"digest": digest(HERE), "text": HERE})
        put_row(connection, schema.WORKLOADS, {"digest": digest("text"), "text": "text"})
    return database


def some(tmp_path: Path) -> CostDatabase:
    database = made(tmp_path / "some.sqlite", row(), row("tvm:a:L2", None), quarantine=(entry(),))
    database.keep_fact("launch", HERE, 5e-7)
    return database


def test_an_export_is_a_database_again_byte_for_byte(tmp_path: Path) -> None:
    lines = list(to_lines(contents(some(tmp_path))))
    again = CostDatabase(tmp_path / "again.sqlite")
    merge(again, from_lines(lines, "export"))
    assert list(to_lines(contents(again))) == lines
    assert again.fact("launch", HERE) == 5e-7
    assert again.quarantined(["onednn:b:L2"], "3.2")["onednn:b:L2"].kind is FailureKind.CRASH


def test_an_export_does_not_hang_on_the_order_of_writing(tmp_path: Path) -> None:
    keys = ("onednn:b", "tvm:A", "onednn:a")
    first = made(tmp_path / "first.sqlite", *map(row, keys))
    second = made(tmp_path / "second.sqlite", *map(row, reversed(keys)))
    assert list(to_lines(contents(first))) == list(to_lines(contents(second)))


def line(table: str, **changed: Any) -> str:
    return json.dumps({"table": table, **{"costs": row, "quarantine": entry}[table](), **changed})


BROKEN = {
    "no JSON": ("{", "it is not a JSON object"),
    "a list": ("[]", "it is not a JSON object"),
    "no such table": ('{"table": "users"}', "there is no table 'users'"),
    "a field too many": (line("costs", color="red"), "a row of costs has the fields key, fingerprint, label"),
    "a text for a number": (line("costs", runs="3"), "runs cannot be '3'"),
    "a number for a text": (line("costs", label=3), "label cannot be 3"),
    "no key": (line("costs", key=None), "key cannot be None"),
    "a cost below nothing": (line("costs", seconds=-1e-6), "seconds cannot be -1e-06"),
    "not a number": (line("costs", seconds=float("nan")), "seconds cannot be nan"),
    "an infinite cost": (line("costs", seconds=float("inf")), "seconds cannot be inf"),
    "more runs than can be": (line("costs", runs=1 << 40), "runs cannot be 1099511627776"),
    "neither cost nor reason": (line("costs", seconds=None), "there is neither a cost nor a reason"),
    "an unknown kind": (line("quarantine", kind="tired"), "kind cannot be 'tired'"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_line_is_named_by_its_number(what: str) -> None:
    broken, reason = BROKEN[what]
    lines = ['{"unity_collage": "costs", "schema": 3}', line("costs"), broken]
    with pytest.raises(DatabaseError) as caught:
        from_lines(lines, "costs.jsonl")
    assert str(caught.value).startswith(f"costs.jsonl, line 3: {reason}")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "costs.jsonl is empty"),
        (
            ["no JSON"],
            "costs.jsonl, line 1: this is not an export of a cost database, as db export writes it",
        ),
        (
            ['{"schema": 2}'],
            "costs.jsonl, line 1: this is not an export of a cost database, as db export writes it",
        ),
        (
            ['{"unity_collage": "costs", "schema": 4}'],
            "costs.jsonl, line 1: it has schema 4, and this version of unity_collage has 3",
        ),
    ],
)
def test_what_is_no_export_says_so(lines: list[str], reason: str) -> None:
    with pytest.raises(DatabaseError) as caught:
        from_lines(lines, "costs.jsonl")
    assert str(caught.value) == reason


def offered(*costs: dict[str, Any]) -> Contents:
    return {"costs": list(costs)}


def test_merging_keeps_the_newer_cost_and_counts(tmp_path: Path) -> None:
    database = made(tmp_path / "costs.sqlite", row("older"), row("newer", created=300.0), row("equal"))
    (merged,) = merge(
        database, offered(*(row(key, 2e-6, 200.0) for key in ("older", "newer", "new")), row("equal", 2e-6))
    )
    assert (merged.offered, merged.added, merged.replaced, merged.kept) == (4, 1, 1, 2)
    seconds = {cost.key: cost.seconds for cost in database.costs()}
    assert seconds == {"older": 2e-6, "newer": 1e-6, "new": 2e-6, "equal": 1e-6}


def test_merging_never_puts_a_timeout_in_place_of_a_cost(tmp_path: Path) -> None:
    database = made(tmp_path / "costs.sqlite", row("slow"), row("wrong"))
    merge(database, offered(row("slow", None, 200.0, lasting=False), row("wrong", None, 200.0)))
    assert [(cost.key, cost.seconds) for cost in database.costs()] == [("slow", 1e-6), ("wrong", None)]


def test_a_merge_that_fails_changes_nothing(tmp_path: Path) -> None:
    database = made(tmp_path / "costs.sqlite", row("here"))
    with pytest.raises(DatabaseError, match="NOT NULL"):
        merge(database, offered(row("there"), row("broken", label=None)))
    assert [cost.key for cost in database.costs()] == ["here"]


def costs(*rows: dict[str, Any]) -> list[CostRow]:
    return [CostRow(**one) for one in rows]


def test_a_comparison_tells_what_differs_by_more_than_asked() -> None:
    first = costs(row("a", 1e-6), row("b", 1e-6), row("c", 1e-6), row("d", None), row("e", None), row("f"))
    second = costs(
        row("a", 1.05e-6), row("b", 0.5e-6), row("c", 1.5e-6), row("d", 1e-6), row("e", None), row("g")
    )
    found = compare(first, second, more_than=0.1, by_key=False)
    assert [(pair.first.key, pair.ratio) for pair in found.apart] == [
        ("d", None),
        ("b", pytest.approx(0.5)),
        ("c", pytest.approx(1.5)),
    ]
    assert (found.alike, found.only_first, found.only_second) == (2, 1, 1)


def test_other_fingerprints_are_compared_by_their_newest_cost_if_asked() -> None:
    first = costs(row("a", 1e-6, fingerprint="old"), row("a", 2e-6, 200.0, fingerprint="new"))
    second = costs(row("a", 4e-6, fingerprint="other"))
    assert compare(first, second, 0.1, by_key=False).apart == ()
    (pair,) = compare(first, second, 0.1, by_key=True).apart
    assert pair.ratio == pytest.approx(2.0)


def left(database: CostDatabase, prune: Prune) -> tuple[list[str], list[str]]:
    """The keys of what is left of costs, and the versions of what is left of the quarantine."""
    remove(database, doomed(database, prune))
    return [cost.key for cost in database.costs()], [one.version for one in database.quarantine_entries()]


def test_pruning_by_age_takes_the_texts_that_nobody_names_any_more(tmp_path: Path) -> None:
    old, new = row("old", fingerprint="f" * 16, workload="w" * 16), row("new", created=200.0)
    database = made(tmp_path / "costs.sqlite", old, new, quarantine=(entry(), entry("3.3", created=200.0)))
    with database.writing() as connection:
        put_row(connection, schema.FINGERPRINTS, {"digest": "f" * 16, "text": "gone"})
        put_row(connection, schema.WORKLOADS, {"digest": "w" * 16, "text": "gone"})
    assert left(database, Prune(before=150.0)) == (["new"], ["3.3"])
    assert database.fingerprints() == {digest(HERE): HERE}
    assert list(database.workloads(["w" * 16, digest("text")])) == [digest("text")]


def test_pruning_by_version_and_by_kind(tmp_path: Path) -> None:
    entries = (entry("3.1"), entry("3.2"), entry("3.3", FailureKind.HANG))
    database = made(tmp_path / "costs.sqlite", row(), quarantine=entries)
    assert left(database, Prune(versions={"tvm": "0.27"})) == (["onednn:a:L2"], ["3.1", "3.2", "3.3"])
    assert left(database, Prune(kinds=frozenset({"hang"}))) == (["onednn:a:L2"], ["3.1", "3.2"])
    assert left(database, Prune(versions={"onednn": "3.2"})) == (["onednn:a:L2"], ["3.2"])
    assert left(database, Prune(fingerprints=frozenset({digest(HERE)}))) == ([], ["3.2"])


def test_pruning_spares_what_was_renewed_meanwhile(tmp_path: Path) -> None:
    database = made(tmp_path / "costs.sqlite", row("a"), row("b"))
    rows = doomed(database, Prune(before=150.0))
    database.put("a", HERE, "relu", Cost(2e-6))
    remove(database, rows)
    assert [cost.key for cost in database.costs()] == ["a"]


def fingerprint(**changed: str) -> str:
    usual = {"backend": "onednn", "version": "3.2", "tvm": "0.27", "made by": "extraction 1", "target": "llvm",
             "threads": "2", "method": "m", "machine": "EPYC", "system": "Linux"}  # fmt: skip
    return "\n".join(f"{name}: {value}" for name, value in {**usual, **changed}.items())


@pytest.mark.parametrize(
    ("changed", "gone"),
    [
        ({}, False),
        ({"version": "3.1"}, True),
        ({"made by": "extraction 0"}, True),
        ({"threads": "4"}, False),
        ({"machine": "Xeon", "version": "3.1"}, False),
        ({"backend": "another", "version": "1"}, False),
    ],
)
def test_stale_is_what_this_machine_has_made_and_makes_no_longer(changed: dict[str, str], gone: bool) -> None:
    texts = {"there": fingerprint(**changed)}
    assert stale(texts, {"onednn": fingerprint()}) == (frozenset({"there"}) if gone else frozenset())


def test_fingerprints_say_in_what_they_differ() -> None:
    assert fields_of("threads: 2\ntarget: {a: b}") == {"threads": "2", "target": "{a: b}"}
    assert differences("threads: 2\nsame: x", "threads: 4\nsame: x\nenvironment: OMP=1") == {
        "threads": ("2", "4"),
        "environment": ("", "OMP=1"),
    }
