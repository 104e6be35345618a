"""When a machine accepts a pack of costs. A client with given answers measures."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from packed_machines import (
    KERNELS,
    SECONDS,
    Machine,
    Typed,
    cost,
    packed_by_the_first,
    second,
)

from unity_collage.database import schema
from unity_collage.database.costs import CostDatabase
from unity_collage.database.packs import CostPack, shipped, to_bytes
from unity_collage.errors import MissingCost
from unity_collage.machine import fingerprint as machines
from unity_collage.measure import packed
from unity_collage.measure import verdict as verdicts
from unity_collage.measure.verdict import LEAST, SAMPLE, spread
from unity_collage.plan.costs import PACKED, Cost


@pytest.fixture
def pack(tmp_path: Path) -> CostPack:
    return packed_by_the_first(tmp_path)


def test_where_a_sample_agrees_the_pack_answers_at_the_level_of_this_machine(
    tmp_path: Path, pack: CostPack
) -> None:
    machine = Machine({KERNELS[3].key: 1.04}, all_times=1.5)
    model = second(tmp_path, pack, machine)
    found = model.known(KERNELS)
    assert len(machine.asked) == SAMPLE and set(found) == {w.key for w in KERNELS}
    for workload in KERNELS[:-1]:
        known = found[workload.key]
        assert known.seconds == pytest.approx(1.5 * SECONDS[workload.key], rel=0.05)
        assert known.origin == ("database" if workload.key in machine.asked else PACKED)
        assert known.low < (known.seconds or 0.0) < known.high
    assert found[KERNELS[-1].key] == Cost(None, origin=PACKED, reason="it has no shape")
    assert model.costs(KERNELS).keys() == found.keys() and len(machine.asked) == SAMPLE


def test_a_verdict_and_the_pack_are_in_the_database_of_the_machine(
    tmp_path: Path, pack: CostPack, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zen.pack").write_bytes(to_bytes(pack))
    monkeypatch.setattr(packed, "shipped", lambda: shipped(tmp_path))
    database = CostDatabase(tmp_path / "second.sqlite")
    first = Typed(database, machine=Machine())
    found = first.known(KERNELS)
    monkeypatch.setattr(packed, "shipped", lambda: iter(()))
    for options in ({}, {"locked": True}):
        again = Typed(database, machine=Machine(), **options)
        assert {key: c.seconds for key, c in again.costs(KERNELS).items()} == {
            key: c.seconds for key, c in found.items()
        }
        assert not again.machine.asked


FACTORS = {workload.key: 1.0 + 0.3 * (number % 4) for number, workload in enumerate(KERNELS)}


def test_a_sample_that_disagrees_refuses_the_pack(
    tmp_path: Path, pack: CostPack, caplog: pytest.LogCaptureFixture
) -> None:
    first = second(tmp_path, pack, Machine(FACTORS))
    found = first.known(KERNELS)
    assert set(found) == set(first.machine.asked) and len(found) == SAMPLE, "what was measured for it holds"
    assert "pack" in caplog.text and "is not used on this machine" in caplog.text
    again = second(tmp_path, pack, Machine(FACTORS))
    assert {c.origin for c in again.known(KERNELS).values()} == {"database"} and not again.machine.asked
    assert {c.origin for c in again.costs(KERNELS).values()} == {"database", "measured"}


def test_a_pack_is_refused_for_good_by_the_second_compile(tmp_path: Path, pack: CostPack) -> None:
    """The database forgets what the first compiles have measured, so that each compile is one of another model."""
    for machine, asked in ((Machine(FACTORS), SAMPLE), (Machine(FACTORS), SAMPLE), (Machine(), 0)):
        model = second(tmp_path, pack, machine)
        model.known(KERNELS)
        assert len(machine.asked) == asked
        _forget(model.database)
    assert model.known(KERNELS) == {}


def test_a_pack_that_was_refused_once_may_be_accepted(tmp_path: Path, pack: CostPack) -> None:
    busy = second(tmp_path, pack, Machine(FACTORS))
    busy.known(KERNELS)
    _forget(busy.database)
    for asked in (SAMPLE, 0):
        calm = second(tmp_path, pack)
        assert PACKED in {known.origin for known in calm.known(KERNELS).values()}
        assert len(calm.machine.asked) == asked


def _forget(database: CostDatabase | None) -> None:
    assert database is not None
    with database.writing() as connection:
        connection.execute(schema.COSTS.delete())


def test_kernels_that_have_no_cost_here_disagree(tmp_path: Path, pack: CostPack) -> None:
    model = second(
        tmp_path, pack, Machine({workload.key: 0.0 for workload in KERNELS if workload.backend == "tvm"})
    )
    assert all(known.origin != PACKED for known in model.known(KERNELS).values())


def test_a_kernel_without_a_cost_here_has_no_packed_one(tmp_path: Path, pack: CostPack) -> None:
    costs = {workload.key: cost(SECONDS[workload.key]) for workload in KERNELS[:-1]}
    first = spread(costs, {workload.key: workload.backend for workload in KERNELS}, SAMPLE)[0]
    model = second(tmp_path, pack, Machine({first: 0.0}))
    found = model.costs(KERNELS)
    assert found[first].reason == "it cannot be built"
    assert PACKED in {known.origin for known in found.values()}


def test_what_was_measured_here_is_a_sample_and_wins(tmp_path: Path, pack: CostPack) -> None:
    few, rest = KERNELS[:SAMPLE], KERNELS[SAMPLE:]
    slow = Machine({few[0].key: 3.0})
    second(tmp_path, pack, slow, packs=False).costs(few)
    model = second(tmp_path, pack)
    found = model.costs(KERNELS)
    assert not model.machine.asked
    assert found[few[0].key].seconds == pytest.approx(3e-6) and found[few[0].key].origin == "database"
    assert {found[workload.key].origin for workload in rest} == {PACKED}


@pytest.mark.parametrize(
    "changed", [{"version": "2"}, {"threads": "4"}, {"method": "3"}], ids=["version", "threads", "method"]
)
def test_another_version_is_measured_as_ever(
    tmp_path: Path, pack: CostPack, changed: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    model = second(tmp_path, pack, changed=changed)
    assert model.known(KERNELS) == {} and not model.machine.asked
    assert f"has no costs for this machine: {next(iter(changed))} is " in caplog.text


def test_another_family_is_not_asked_and_one_backend_may_have_another_version(
    tmp_path: Path, pack: CostPack, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {
        text.replace("backend: tvm\nversion: 1", "backend: tvm\nversion: 2"): costs
        for text, costs in pack.entries.items()
    }
    more = [*KERNELS, *(replace(w, digest=f"more{n}") for n, w in enumerate(KERNELS))]
    entries = {
        text: {
            **costs,
            **{w.key: [1e-6, 1e-6, 1e-6, 9] for w in more[20:] if f"backend: {w.backend}" in text},
        }
        for text, costs in other.items()
    }
    for workload in more[20:]:
        monkeypatch.setitem(SECONDS, workload.key, 1e-6)
    found = second(tmp_path, CostPack(entries)).known(more)
    assert {key.partition(":")[0] for key, known in found.items() if known.origin == PACKED} == {"onednn"}
    monkeypatch.setattr(machines, "_family", lambda: "vendor_id Another")
    (tmp_path / "another").mkdir()
    model = second(tmp_path / "another", pack)
    assert model.known(KERNELS) == {} and not model.machine.asked


def test_nothing_is_said_about_a_pack_where_nothing_can_be_measured(tmp_path: Path, pack: CostPack) -> None:
    with pytest.raises(MissingCost):
        second(tmp_path, pack, locked=True).costs(KERNELS)
    assert second(tmp_path, pack, packs=False).known(KERNELS) == {}
    late = second(tmp_path, pack)
    late.stop()
    assert late.known(KERNELS) == {}
    noisy = second(tmp_path, pack, Machine(doubtful=99))
    assert all(known.origin != PACKED for known in noisy.known(KERNELS).values())
    noisy.known(KERNELS)
    assert len(noisy.machine.asked) == 2 * SAMPLE, "a session tries once"


def test_a_disturbed_sample_is_completed(tmp_path: Path, pack: CostPack) -> None:
    model = second(tmp_path, pack, Machine(doubtful=2))
    assert PACKED in {known.origin for known in model.known(KERNELS).values()}
    assert len(model.machine.asked) == SAMPLE + 2


def test_no_sample_is_measured_for_less_than_it_saves(
    tmp_path: Path, pack: CostPack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    model = second(tmp_path, pack)
    assert model.known(KERNELS[:SAMPLE]) == {} and not model.machine.asked
    assert model.known([replace(KERNELS[0], digest="not in the pack")]) == {}
    assert "has no costs for this machine" not in caplog.text


def test_a_slow_sample_ends_early(tmp_path: Path, pack: CostPack, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(99))
    monkeypatch.setattr(verdicts, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    model = second(tmp_path, pack)
    model.known(KERNELS)
    assert len(model.machine.asked) == LEAST, "a second each: after three there must be five"


def test_a_packed_kernel_that_is_compared_keeps_its_cost(
    tmp_path: Path, pack: CostPack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine is three times as slow while the kernel runs on one thread too. The next compile reads one cost."""
    before = second(tmp_path, pack).known(KERNELS)
    shared = next(w for w in KERNELS if before[w.key].origin == PACKED)
    single = replace(shared, digest="on one thread")
    monkeypatch.setitem(SECONDS, single.key, SECONDS[shared.key] / 2)
    found = second(tmp_path, pack, Machine(all_times=3.0)).compared([shared, single])
    assert found[shared.key] == before[shared.key]
    assert found[single.key].seconds == pytest.approx((before[shared.key].seconds or 0.0) / 2)
    again = second(tmp_path, pack)
    assert again.known([*KERNELS, single])[shared.key] == before[shared.key]
    assert again.compared([shared, single])[single.key].seconds == found[single.key].seconds
    assert not again.machine.asked
