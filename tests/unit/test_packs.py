"""Packs of costs: what is in one, and files that are not packs."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import asdict, replace
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from packed_machines import (
    cost,
    families,
    fingerprint,
    kernel,
    packed_by_the_first,
    put,
)

from unity_collage.cli.db_packs import import_packs
from unity_collage.cost.fingerprint import of_family
from unity_collage.database import packs
from unity_collage.database.costs import CostDatabase
from unity_collage.database.packs import CostPack, from_bytes, keep, kept, made, read, shipped, to_bytes
from unity_collage.errors import DatabaseError
from unity_collage.machine import peaks
from unity_collage.machine.caches import Caches
from unity_collage.plan.costs import PACKED, Cost


@pytest.fixture
def pack(tmp_path: Path) -> CostPack:
    return packed_by_the_first(tmp_path)


def test_a_pack_has_the_sure_costs_and_lasting_refusals_of_this_machine(tmp_path: Path) -> None:
    with CostDatabase(tmp_path / "costs.sqlite") as database:
        put(database, kernel(0), Cost(1.23456e-6, 1.2e-6, 1.3e-6, 9))
        put(database, kernel(1), Cost(None, reason="it has no shape"))
        put(database, kernel(2), replace(cost(1e-6), is_doubtful=True))
        put(database, kernel(3), Cost(None, reason="it was silent"), lasting=False)
        database.put(kernel(4).key, fingerprint("onednn", "another"), "", cost(1e-6), backend="onednn")
        found = made(database, families(), {})
    assert found.entries == {
        of_family(fingerprint("onednn")): {kernel(0).key: [1.235e-6, 1.2e-6, 1.3e-6, 9]},
        of_family(fingerprint("tvm")): {kernel(1).key: "it has no shape"},
    }
    assert found.get(kernel(0).key, of_family(fingerprint("onednn"))) == Cost(
        1.235e-6, 1.2e-6, 1.3e-6, 9, PACKED
    )


def test_a_pack_is_the_same_after_a_file_and_a_database(tmp_path: Path, pack: CostPack) -> None:
    data = to_bytes(pack)
    assert to_bytes(from_bytes(data, "a")) == data
    (tmp_path / "zen.pack").write_bytes(data)
    assert [other.name for other in shipped(tmp_path)] == [pack.name]
    with CostDatabase(tmp_path / "costs.sqlite") as database:
        keep(database, read(tmp_path / "zen.pack"))
        assert list(kept(database)) == [pack]
        assert len(database) == 0, "what was measured elsewhere is not among the costs"


HEADER = '{"unity_collage": "pack", "format": 1'


def test_a_pack_may_come_from_standard_input(
    tmp_path: Path, pack: CostPack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(to_bytes(pack))))
    import_packs(str(tmp_path / "other.sqlite"), ["-"])
    with CostDatabase(tmp_path / "other.sqlite") as database:
        assert [each.name for each in kept(database)] == [pack.name]


def compressed(text: str) -> bytes:
    """Without the time: the names of the tests have these bytes, and two processes that run them have to agree."""
    return gzip.compress(text.encode(), mtime=0)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"costs", "is not a pack of costs: db export --pack writes one"),
        (compressed("{}")[:-6], "is not a pack of costs: db export --pack writes one"),
        (compressed("[1]"), "is not a pack of costs that this version"),
        (compressed('{"unity_collage": "pack", "format": 2}'), "is not a pack of costs that this version"),
        (compressed('{"unity_collage": "pack", "format": 1}'), "it has no costs by fingerprint"),
        (compressed('{"unity_collage": "pack", "format": 1, "costs": {}}'), "it has no peaks by fingerprint"),
        *(
            (compressed(f'{HEADER}, "costs": {{"f": {{"k": {entry}}}}}, "peaks": {{}}}}'), "k cannot cost ")
            for entry in ('""', "[1e-6]", "[0, 0, 0, 3]", "[1, -1, 1, 3]", "[true, 0, 0, 3]", "null", '["a", 1, 1, 3]')
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


def test_peaks_are_taken_at_the_level_of_this_machine_where_the_caches_are_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tests that measure the machine give its peaks to all databases, unless this is another function.
    monkeypatch.setattr(peaks, "measured_apart", lambda _caches: pytest.fail("measured"))

    def known(name: str, l3_bytes: int) -> CostDatabase:
        monkeypatch.setattr(peaks, "caches", lambda _database: Caches(1 << 21, l3_bytes))
        return CostDatabase(tmp_path / f"{name}.sqlite")

    curve = ((1 << 15, 2e10), (1 << 20, 1e10))
    with known("first", 1 << 24) as first:
        assert peaks.of_family(first) == {}
        weights = ((1 << 22, 8e9), (Caches(1 << 21, 1 << 24).all_bytes, 4e9))
        fast = peaks.Machine(2, 1e11, curve, curve, weights)
        first.keep_fact("peaks", peaks.peaks_fingerprint(), asdict(fast))
        packed_peaks = json.loads(json.dumps(peaks.of_family(first)))
    with known("alike", 1 << 24) as alike:
        peaks.take(alike, packed_peaks, 2.0)
        slow = peaks.known_machine(alike)
        assert slow is not None and (slow.flops, slow.reads[0]) == (5e10, (1 << 15, 1e10))
        peaks.take(alike, packed_peaks, 1.0)
        assert peaks.known_machine(alike) == slow, "what is known stays"
    with known("other", 1 << 26) as other:
        peaks.take(other, packed_peaks, 1.0)
        assert peaks.known_machine(other) is None
    with known("broken", 1 << 24) as broken:
        peaks.take(broken, {name: {"flops": 1.0} for name in packed_peaks}, 1.0)
        assert peaks.known_machine(broken) is None


def test_the_folder_of_packs_comes_with_the_package() -> None:
    assert (packs.FOLDER / "README.md").exists()
