"""``diagnose`` and ``unity-collage doctor``: what they say of this machine and of broken ones, and what is private."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from unity_collage.cli import main as cli
from unity_collage.database.costs import CostDatabase
from unity_collage.inspection import doctor, system
from unity_collage.inspection import trial as trial_module
from unity_collage.inspection.doctor import Diagnosis, diagnose
from unity_collage.inspection.privacy import Privacy, without_secrets
from unity_collage.inspection.stores import database_state, kept_files, size_of
from unity_collage.inspection.trial import TrialCompile, trial
from unity_collage.plan.costs import Cost
from unity_collage.report.doctor import diagnosis_text

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "command_line.md").read_text()


@cache
def here() -> Diagnosis:
    """The state of this machine, with the compile of the small model."""
    return diagnose()


def test_a_file_that_is_removed_meanwhile_has_no_size(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"1234")
    assert size_of([tmp_path / "kept", tmp_path / "removed"]) == 4


def test_a_database_whose_name_the_system_refuses_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / f"{'x' * 300}.sqlite"
    found = database_state(path)
    assert (found.exists, found.costs) == (False, None) and found.free_bytes
    assert kept_files(path).programs == 0


def shown(found: Diagnosis, width: int = 200) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(diagnosis_text(found), highlight=False)
    return captured.get()


def test_a_compile_works_here_and_torch_is_not_imported() -> None:
    imported = "torch" in sys.modules
    found = here()
    assert found.why_not is None and found.trial is not None and found.trial.problem is None
    assert {"onednn", "openblas", "kernels", "tvm"} <= {
        each.name for each in found.backends if each.is_available
    }
    assert found.processor.threads and found.processor.usable_cores <= found.processor.cores
    assert ("torch" in sys.modules) == imported


def test_every_part_is_shown_and_every_field_is_documented() -> None:
    text = shown(here())
    for title in ("versions", "processor", "thread pools", "libraries", "backends", "C++ compiler", "GPU",
                  "database of costs", "kept beside it", "environment variables", "a compile"):  # fmt: skip
        assert f"\n{title}" in f"\n{text}"
    row = next(line for line in DOCUMENT.splitlines() if line.startswith("| `doctor` | `versions`"))
    assert all(f"`{each.name}`" in row for each in fields(Diagnosis))


def test_what_is_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_version", lambda _: None)
    monkeypatch.setattr(system, "_compiler", lambda: None)
    libraries = system.installed_libraries()
    assert all(each.version is None and "pip install '" in each.remedy for each in libraries)
    remedies = {each.distribution: each.remedy for each in libraries}
    assert re.fullmatch(r"compiles everything: pip install 'apache-tvm==[\d.post]+'", remedies["apache-tvm"])
    assert remedies["torch"] == "for modules and .pt2 files: pip install 'unity_collage[torch]'"
    found = replace(here(), libraries=libraries, toolchain=system.toolchain(has_tvm=True))
    text = shown(found)
    assert "not installed; for whole models: pip install 'openvino'" in text
    assert "not found; programs are compiled, saved and loaded without one" in text


def test_the_command_prints_the_same_as_data_and_its_exit_code_is_the_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "diagnose", lambda _: here())
    assert cli.main(["doctor", "--json", "-q"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and json.loads(out)["processor"]["name"] == here().processor.name
    broken = replace(here(), trial=None, why_not="TVM cannot be imported: no")
    monkeypatch.setattr(doctor, "diagnose", lambda _: broken)
    assert cli.main(["doctor", "-q"]) == 1
    out, err = capsys.readouterr()
    assert err == "unity-collage: a compile cannot work here: TVM cannot be imported: no\n"
    assert "cannot work" in out


def test_without_tvm_the_rest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise ImportError("libtvm.so: undefined symbol")

    monkeypatch.setattr(doctor, "import_without_torch", broken)
    found = diagnose()
    assert found.why_not is not None and found.why_not.startswith(
        "TVM cannot be imported: libtvm.so: undefined"
    )
    assert (found.backends, found.trial) == ((), None)
    assert found.processor.instruction_sets and found.database.place


def test_a_trial_that_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("LLVM: no such processor\nmore")

    monkeypatch.setattr(trial_module, "_problem", broken)
    found = trial()
    assert found.problem == "a small model cannot be compiled and run: RuntimeError: LLVM: no such processor"
    monkeypatch.setattr(doctor, "trial", lambda: TrialCompile(0.1, "no"))
    assert diagnose().why_not == "no"


def test_costs_are_counted_and_nothing_is_created(tmp_path: Path) -> None:
    path = tmp_path / "some" / "costs.sqlite"
    found = database_state(path)
    assert (found.exists, found.costs, found.is_writable, found.problem) == (False, None, True, "")
    assert not path.parent.exists()
    with CostDatabase(path) as database:
        for number in range(3):
            cost = Cost(1.0, 1.0, 1.0, 9, is_doubtful=number == 0)
            database.put(f"k{number}", "f", "relu", cost, backend="tvm")
    found = database_state(path)
    assert (found.exists, found.costs, found.doubtful, found.problem) == (True, 3, 1, "")
    assert found.nbytes and found.free_bytes
    path.with_name("costs-programs").mkdir()
    (path.with_name("costs-programs") / "a.so").write_bytes(b"123")
    kept = kept_files(path)
    assert (kept.programs, kept.program_bytes, kept.functions) == (1, 3, 0)


def test_a_file_that_is_no_database_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("these are no costs\n" * 100)
    found = database_state(tmp_path / "notes.txt")
    assert found.why_unusable == found.problem
    assert found.costs is None and "not a database" in found.problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/ann/lib:/opt/x", "~/lib:/opt/x"),
        ("/home/annette/lib", "/home/USER/lib"),
        ("/data/ann/costs.sqlite", "/data/USER/costs.sqlite"),
        ("/srv/home/ann", "/srv/home/USER"),
        ("planner and ann", "planner and ann"),
        ("postgresql://ann:secret@db.corp:5432/costs", "postgresql://HOST/costs"),
        ('cannot resolve db.corp: user "ann"', 'cannot resolve HOST: user "USER"'),
    ],
)
def test_what_is_private_is_left_out(text: str, expected: str) -> None:
    assert Privacy("/home/ann", ("ann",), ("db.corp",)).text(text) == expected


def test_nothing_private_is_left_in_a_diagnosis(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "zoe"))
    monkeypatch.setenv("USER", "zoe")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/zoe/lib:/scratch/zoe/lib")
    monkeypatch.setenv("TVM_TRACKER_KEY", "xyzzy")
    monkeypatch.setattr(doctor, "trial", lambda: TrialCompile(0.1, None))
    found = diagnose(tmp_path / "zoe" / "costs.sqlite")
    assert found.database.place == f"~{os.sep}costs.sqlite"
    assert found.settings["LD_LIBRARY_PATH"] == "~/lib:/scratch/USER/lib"
    assert found.settings["TVM_TRACKER_KEY"] == "(set)"
    assert "zoe" not in shown(found) and "xyzzy" not in shown(found)


def test_secrets_are_known_by_their_names() -> None:
    assert without_secrets({"TVM_TOKEN": "a", "OMP_NUM_THREADS": "2"}) == {
        "TVM_TOKEN": "(set)",
        "OMP_NUM_THREADS": "2",
    }
