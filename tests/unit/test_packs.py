"""Packs of costs: what is in one, and when a machine believes it. A typed client measures."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, COSTS, PLAN
from unity_collage.cost.fingerprint import of_family
from unity_collage.cost.model import Workload
from unity_collage.database import packs
from unity_collage.database.costs import CostDatabase
from unity_collage.database.packs import Pack, from_bytes, keep, kept, made, read, shipped, to_bytes
from unity_collage.errors import DatabaseError, MissingCost
from unity_collage.machine import fingerprint as machines
from unity_collage.measure import packed
from unity_collage.measure.client import Answer
from unity_collage.measure.measured import MeasuredCost
from unity_collage.measure.packed import LEAST, SAMPLE, spread, verdict_on
from unity_collage.measure.questions import Client, Fingerprints
from unity_collage.measure.refusal import Refusal
from unity_collage.passes import AnnotateCandidates, SearchPartition
from unity_collage.plan.costs import PACKED, Cost, Costs
from unity_collage.plan.explanation import ExplainedCost
from unity_collage.report.words import costed
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends

BACKENDS = ("onednn", "tvm")
FUNC = graphs.chain()


def fingerprint(backend: str, machine: str = "the first", **changed: str) -> str:
    fields = {"backend": backend, "version": "1", "threads": "2", "machine": machine, **changed}
    return machines.text_of(fields)


def kernel(number: int) -> Workload:
    return Workload(f"digest{number}", BACKENDS[number % 2], f"kernel {number}", FUNC, 0)


KERNELS = [kernel(number) for number in range(20)]
SECONDS = {workload.key: 1e-6 * (number + 1) for number, workload in enumerate(KERNELS)}


def cost(seconds: float) -> Cost:
    return Cost(seconds, 0.99 * seconds, 1.01 * seconds, 9)


@dataclass
class Machine:
    """Measures the costs of ``SECONDS``, each times a factor, and remembers what it was asked for."""

    factors: Mapping[str, float] = field(default_factory=dict)
    all_times: float = 1.0
    doubtful: bool = False
    asked: list[str] = field(default_factory=list)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"reason": "nothing is measured"}

    def compare(
        self, request: Mapping[str, Any], candidates: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Answer]:
        self.asked += candidates
        return {key: self._answer(key) for key in candidates}

    def _answer(self, key: str) -> Answer:
        factor = self.factors.get(key, 1.0) * self.all_times
        if not factor:
            return Refusal("it cannot be built")
        return replace(cost(SECONDS[key] * factor), is_doubtful=self.doubtful)


@dataclass(frozen=True)
class Typed(MeasuredCost):
    """Costs on a typed machine."""

    machine: Machine = field(default_factory=Machine)
    changed: Mapping[str, str] = field(default_factory=dict)

    def _client(self) -> Client:
        return self.machine

    def _fingerprints(self) -> Fingerprints:
        return Fingerprints(
            Target("llvm"),
            lambda backend: fingerprint(backend, "the second", **self.changed),
            lambda backend: f"{backend} 1",
        )


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    """A pack of all kernels, from the first machine; the last one is refused there."""
    with CostDatabase(tmp_path / "first.sqlite") as first:
        for workload in KERNELS[:-1]:
            put(first, workload, cost(SECONDS[workload.key]))
        put(first, KERNELS[-1], Cost(None, reason="it has no shape"))
        return made(first, families())


def families() -> dict[str, str]:
    return {fingerprint(backend): of_family(fingerprint(backend)) for backend in BACKENDS}


def put(database: CostDatabase, workload: Workload, known: Cost, **others: Any) -> None:
    database.put(workload.key, fingerprint(workload.backend), "", known, backend=workload.backend, **others)


def second(tmp_path: Path, pack: Pack, machine: Machine | None = None, **options: Any) -> Typed:
    """Another machine of the family, whose database has the pack."""
    database = CostDatabase(tmp_path / "second.sqlite")
    keep(database, pack)
    return Typed(database, machine=machine or Machine(), **options)


def test_a_pack_has_the_sure_costs_and_lasting_refusals_of_this_machine(tmp_path: Path) -> None:
    with CostDatabase(tmp_path / "costs.sqlite") as database:
        put(database, kernel(0), Cost(1.23456e-6, 1.2e-6, 1.3e-6, 9))
        put(database, kernel(1), Cost(None, reason="it has no shape"))
        put(database, kernel(2), replace(cost(1e-6), is_doubtful=True))
        put(database, kernel(3), Cost(None, reason="it was silent"), lasting=False)
        database.put(kernel(4).key, fingerprint("onednn", "another"), "", cost(1e-6), backend="onednn")
        found = made(database, families())
    assert found.entries == {
        of_family(fingerprint("onednn")): {kernel(0).key: [1.235e-6, 1.2e-6, 1.3e-6, 9]},
        of_family(fingerprint("tvm")): {kernel(1).key: "it has no shape"},
    }
    assert found.get(kernel(0).key, of_family(fingerprint("onednn"))) == Cost(
        1.235e-6, 1.2e-6, 1.3e-6, 9, PACKED
    )


def test_a_pack_is_the_same_after_a_file_and_a_database(tmp_path: Path, pack: Pack) -> None:
    data = to_bytes(pack)
    assert to_bytes(from_bytes(data, "a")) == data
    (tmp_path / "zen.pack").write_bytes(data)
    assert [other.name for other in shipped(tmp_path)] == [pack.name]
    with CostDatabase(tmp_path / "costs.sqlite") as database:
        keep(database, read(tmp_path / "zen.pack"))
        assert list(kept(database)) == [pack]
        assert len(database) == 0, "what was measured elsewhere is not among the costs"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"costs", "is not a pack of costs: db export --pack writes one"),
        (gzip.compress(b"{}")[:-6], "is not a pack of costs: db export --pack writes one"),
        (gzip.compress(b"[1]"), "is not a pack of costs that this version"),
        (gzip.compress(b'{"unity_collage": "pack", "format": 2}'), "is not a pack of costs that this version"),
        (gzip.compress(b'{"unity_collage": "pack", "format": 1}'), "it has no costs by fingerprint"),
        *(
            (gzip.compress(json.dumps({"unity_collage": "pack", "format": 1, "costs": {"f": {"k": entry}}}).encode()),
             "k cannot cost ")
            for entry in ("", [1e-6], [0.0, 0.0, 0.0, 3], [1e-6, -1e-6, 1e-6, 3], [True, 0, 0, 3], None, ["a"] * 4)
        ),
    ],
)  # fmt: skip
def test_a_file_that_is_no_pack_is_one_line(
    tmp_path: Path, content: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "broken.pack"
    path.write_bytes(content)
    with pytest.raises(DatabaseError, match=reason) as raised:
        read(path)
    assert "\n" not in str(raised.value)
    assert list(shipped(tmp_path)) == [] and reason in caplog.text, "a compile goes on without it"


def test_where_a_sample_agrees_the_pack_answers_at_the_level_of_this_machine(
    tmp_path: Path, pack: Pack
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


def test_the_interval_is_as_wide_as_the_disagreement_of_three_quarters() -> None:
    verdict = verdict_on((cost(1.0), cost(ratio)) for ratio in (1.9, 1.92, 1.98, 2.0, 2.0, 2.02, 2.1, 9.0))
    assert verdict is not None and (verdict.ratio, verdict.sample) == (2.0, 8)
    assert verdict.deviation == pytest.approx(0.05)
    assert verdict.applied(Cost(1.0, 0.9, 1.0, 9, PACKED)) == Cost(
        2.0, pytest.approx(1.8 / 1.05), pytest.approx(2.0 * 1.05), 9, PACKED
    )


def test_a_verdict_and_the_pack_are_in_the_database_of_the_machine(
    tmp_path: Path, pack: Pack, monkeypatch: pytest.MonkeyPatch
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


def test_a_sample_that_disagrees_refuses_the_pack_for_good(
    tmp_path: Path, pack: Pack, caplog: pytest.LogCaptureFixture
) -> None:
    factors = {workload.key: 1.0 + 0.3 * (number % 4) for number, workload in enumerate(KERNELS)}
    first = second(tmp_path, pack, Machine(factors))
    found = first.known(KERNELS)
    assert set(found) == set(first.machine.asked), "what was measured for it holds"
    assert "pack" in caplog.text and "is not used on this machine" in caplog.text
    again = second(tmp_path, pack, Machine(factors))
    assert {c.origin for c in again.known(KERNELS).values()} == {"database"} and not again.machine.asked
    assert {c.origin for c in again.costs(KERNELS).values()} == {"database", "measured"}


def test_kernels_that_have_no_cost_here_disagree(tmp_path: Path, pack: Pack) -> None:
    model = second(
        tmp_path, pack, Machine({workload.key: 0.0 for workload in KERNELS if workload.backend == "tvm"})
    )
    assert all(known.origin != PACKED for known in model.known(KERNELS).values())


def test_a_kernel_without_a_cost_here_has_no_packed_one(tmp_path: Path, pack: Pack) -> None:
    costs = {workload.key: cost(SECONDS[workload.key]) for workload in KERNELS[:-1]}
    first = spread(costs, {workload.key: workload.backend for workload in KERNELS}, SAMPLE)[0]
    model = second(tmp_path, pack, Machine({first: 0.0}))
    found = model.costs(KERNELS)
    assert found[first].reason == "it cannot be built"
    assert PACKED in {known.origin for known in found.values()}


def test_what_was_measured_here_is_a_sample_and_wins(tmp_path: Path, pack: Pack) -> None:
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
    tmp_path: Path, pack: Pack, changed: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    model = second(tmp_path, pack, changed=changed)
    assert model.known(KERNELS) == {} and not model.machine.asked
    assert f"has no costs for this machine: {next(iter(changed))} is " in caplog.text


def test_another_family_is_not_asked_and_one_backend_may_have_another_version(
    tmp_path: Path, pack: Pack, monkeypatch: pytest.MonkeyPatch
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
    found = second(tmp_path, Pack(entries)).known(more)
    assert {key.partition(":")[0] for key, known in found.items() if known.origin == PACKED} == {"onednn"}
    monkeypatch.setattr(machines, "_family", lambda: "vendor_id Another")
    (tmp_path / "another").mkdir()
    model = second(tmp_path / "another", pack)
    assert model.known(KERNELS) == {} and not model.machine.asked


def test_nothing_is_said_about_a_pack_where_nothing_can_be_measured(tmp_path: Path, pack: Pack) -> None:
    with pytest.raises(MissingCost):
        second(tmp_path, pack, locked=True).costs(KERNELS)
    assert second(tmp_path, pack, packs=False).known(KERNELS) == {}
    late = second(tmp_path, pack)
    late.stop()
    assert late.known(KERNELS) == {}
    noisy = second(tmp_path, pack, Machine(doubtful=True))
    assert all(known.origin != PACKED for known in noisy.known(KERNELS).values())
    noisy.known(KERNELS)
    assert len(noisy.machine.asked) == SAMPLE, "a session tries once"
    calm = second(tmp_path, pack)
    assert PACKED in {known.origin for known in calm.known(KERNELS).values()}


def test_no_sample_is_measured_for_less_than_it_saves(tmp_path: Path, pack: Pack) -> None:
    model = second(tmp_path, pack)
    assert model.known(KERNELS[:SAMPLE]) == {} and not model.machine.asked


def test_a_slow_sample_ends_early(tmp_path: Path, pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "SAMPLE_SECONDS", 0.0)
    model = second(tmp_path, pack)
    model.known(KERNELS)
    assert len(model.machine.asked) == LEAST


def test_a_sample_is_spread_over_costs_and_backends() -> None:
    costs = {f"{backend}{n}": cost(float(n + 1)) for n in range(40) for backend in ("a", "b")}
    chosen = spread(costs, {key: key[0] for key in costs}, 8)
    seconds = sorted(costs[key].seconds or 0.0 for key in chosen)
    assert [key[0] for key in chosen].count("a") == 4
    assert all(5 * part < value <= 5 * (part + 1) for part, value in enumerate(seconds))
    first = [costs[key].seconds or 0.0 for key in chosen[:4]]
    assert max(first) - min(first) >= 25


@pytest.mark.parametrize(
    ("ratios", "ratio", "is_used"),
    [
        ([1.0] * 8, 1.0, True),
        ([2.0] * 6 + [9.0, 0.1], 2.0, True),
        ([2.0] * 5 + [2.3, 9.0, 0.1], 2.0, False),
        ([1.0, 1.02, 1.04, 1.06, 1.08, 1.1, 1.12, 1.14], 1.07, True),
        ([0.0] * 8, 1.0, False),
    ],
)
def test_three_quarters_must_agree(ratios: list[float], ratio: float, is_used: bool) -> None:
    verdict = verdict_on((cost(1.0), cost(each) if each else Cost(None, reason="no")) for each in ratios)
    assert verdict is not None
    assert verdict.ratio == pytest.approx(ratio) and (verdict.why_not is None) == is_used


def test_the_folder_of_packs_comes_with_the_package() -> None:
    assert (packs.FOLDER / "README.md").exists()


def test_the_plan_and_the_explanation_say_where_a_cost_is_from() -> None:
    known = Cost(2e-6, 1.8e-6, 2.2e-6, 9, PACKED)
    with only_backends(fake_backend("toy", "relax.nn.relu", "relax.exp", "relax.tanh")), Target("llvm"):
        func = AnnotateCandidates()(IRModule({"main": graphs.chain()}))["main"]
        keys = {candidate.id: candidate.backend for candidate in CANDIDATES.read(func)}
        costs = Costs({"toy": known, "tvm": Cost(9e-6)}, keys)
        plan = PLAN.read(SearchPartition()(IRModule({"main": COSTS.write(func, costs)}))["main"])
    assert "the costs of 3 of its kernels are from a pack and were not measured here" in plan.remarks
    assert costed(ExplainedCost.of("toy", known)) == "2.00 us (1.80 us to 2.20 us, from a pack)"
