"""What a compile has asked of a database: the digest changes with each answer, and with nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unity_collage.database.answers import HINT, Answers, digest_now
from unity_collage.database.costs import CostDatabase, FailureKind, Quarantined
from unity_collage.plan.costs import Cost

SURE, DOUBTFUL = Cost(2e-6, 1e-6, 3e-6, 9), Cost(2e-6, 1e-6, 3e-6, 9, is_doubtful=True)
HERE = "threads: 2"


@pytest.fixture
def database(tmp_path: Path) -> CostDatabase:
    made = CostDatabase(tmp_path / "costs.sqlite")
    made.put("known", HERE, "relu", SURE)
    made.keep_fact("peaks", HERE, {"flops": 1e12})
    return made


def asked(database: CostDatabase) -> Answers:
    """What a compile asks that measures one of two kernels, and whose other questions stay without an answer."""
    with database.noting() as answers:
        database.get(["known", "missing", "measured"], HERE)
        database.put("measured", HERE, "add", Cost(1e-6, 1e-6, 2e-6, 9))
        database.quarantined(["known"], "oneDNN 3")
        database.fact("peaks", HERE)
        database.fact("overheads", HERE)
        database.facts("packs")
    return answers


def test_another_process_finds_the_answers_that_were_noted(database: CostDatabase) -> None:
    answers = asked(database)
    other = CostDatabase(database.path, read_only=True)
    assert answers.are_sure
    assert digest_now(other, answers.questions()) == answers.digest


def removed(database: CostDatabase) -> None:
    with database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM collage_costs WHERE key = 'measured'")


@pytest.mark.parametrize(
    "change",
    [
        lambda database: database.put("known", HERE, "relu", Cost(2.1e-6, 1e-6, 3e-6, 9)),
        lambda database: database.put("missing", HERE, "gelu", SURE),
        lambda database: database.put("missing", HERE, "gelu", Cost(None, reason="it is wrong")),
        lambda database: database.keep_fact("peaks", HERE, {"flops": 2e12}),
        lambda database: database.keep_fact("overheads", HERE, {"seconds": 1e-7}),
        lambda database: database.keep_fact("a pack", "packs", {}),
        lambda database: database.quarantine(
            Quarantined("known", "oneDNN 3", "relu", "onednn", FailureKind.HANG, "it hung")
        ),
        removed,
    ],
)
def test_a_changed_answer_changes_the_digest(
    database: CostDatabase, change: Callable[[CostDatabase], None]
) -> None:
    answers = asked(database)
    change(database)
    assert digest_now(database, answers.questions()) != answers.digest


@pytest.mark.parametrize(
    "change",
    [
        lambda database: database.put("other", HERE, "relu", SURE),
        lambda database: database.put("known", "threads: 4", "relu", DOUBTFUL),
        lambda database: database.put("known", HERE, "relu", SURE),
        lambda database: database.keep_fact(f"{HINT}of before", HERE, {}),
    ],
)
def test_what_was_not_asked_changes_nothing(
    database: CostDatabase, change: Callable[[CostDatabase], None]
) -> None:
    with database.noting() as hints:
        database.fact(f"{HINT}of before", HERE)
    answers = asked(database)
    change(database)
    assert digest_now(database, answers.questions()) == answers.digest
    assert hints.questions() == []


def test_answers_are_doubtful_until_they_are_measured_again(database: CostDatabase) -> None:
    with database.noting() as answers:
        database.put("noisy", HERE, "relu", DOUBTFUL)
        database.keep_fact("overheads", HERE, 1.0, True)
        assert not answers.are_sure
        database.put("noisy", HERE, "relu", SURE)
        assert not answers.are_sure
        database.keep_fact("overheads", HERE, 1.0)
        assert answers.are_sure


def test_what_the_database_did_not_take_is_no_answer_of_it(database: CostDatabase) -> None:
    with database.noting() as answers:
        database.put("known", HERE, "relu", Cost(None, reason="a timeout"), lasting=False)
    assert digest_now(database, answers.questions()) != answers.digest
