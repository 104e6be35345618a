"""``--json`` and ``--quiet``: the keys are those that docs/command_line.md lists, and nothing else is printed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from unity_collage.cli import main as cli

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "command_line.md").read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the costs of its kernels, its program and plan, measured once."""
    folder = tmp_path_factory.mktemp("json")
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, (2, size)) for n, size in (("x", 4), ("y", 3))
    ]
    w = numpy_helper.from_array(np.ones((4, 3), "float32"), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="only")
    graph = helper.make_graph([node], "small", values[:1], values[1:], [w])
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    options = [
        "--database",
        str(folder / "c.sqlite"),
        "-o",
        str(folder / "m.so"),
        "--report",
        str(folder / "p.json"),
    ]
    assert cli.main(["compile", str(path), *options]) == 0
    return folder


SPREAD = {"seconds": "", "low": "low_", "high": "high_"}
"""What the time of a kernel has in a plan, and in a profile."""


def documented(command: str) -> set[str]:
    """The keys that the document lists for a command."""
    section = DOCUMENT.partition("## JSON")[2]
    row = re.search(rf"^\| `{re.escape(command)}` \| (.*) \|$", section, re.MULTILINE)
    assert row is not None
    first = re.split(r": (?:objects|by function)", re.sub(r"\([^)]*\)", "", row[1]))[0]
    return set(re.findall(r"`(\w+)`", first))


COMMANDS = {
    "compile": "compile m.onnx --database c.sqlite --verify random",
    "compile --dry-run": "compile m.onnx --database c.sqlite --dry-run",
    "bench": "bench m.onnx --database c.sqlite --rounds 1",
    "backends": "backends",
    "explain --node": "explain m.onnx --database c.sqlite --node only",
    "diff": "diff m.so p.json",
    "examples": "examples",
    "examples NAME": "examples small -o small.onnx --inputs small.npz",
    "bisect": "bisect m.onnx --no-measure --database c.sqlite --backends openblas tvm",
    "info": "info m.so",
    "check FILE": "check m.so",
    "db info": "db info --database c.sqlite --fingerprints",
    "db list": "db list --database c.sqlite",
    "db export": "db export x.jsonl --database c.sqlite",
    "db import": "db import x.jsonl --database other.sqlite",
    "db merge": "db merge c.sqlite --database third.sqlite",
    "db diff": "db diff c.sqlite other.sqlite",
    "db prune": "db prune --stale --dry-run --database c.sqlite",
    "db verify": "db verify --sample 1 --database c.sqlite",
}


def printed(words: list[str], capfd: pytest.CaptureFixture[str]) -> Any:
    """What a quiet command prints; nothing goes to standard error."""
    capfd.readouterr()
    assert cli.main([*words, "--json", "-q"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return json.loads(out, parse_constant=pytest.fail)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_the_keys_that_are_documented(
    command: str, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert set(printed(COMMANDS[command].split(), capfd)) == documented(command)


def test_explanations_and_comparisons_are_by_function(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    words = ["m.onnx", "--database", "c.sqlite"]
    explained = printed(["explain", *words], capfd)
    assert explained.keys() == {"main"} and {"proof", "bindings", "kernels"} <= explained["main"].keys()
    told = printed(["compare", *words, "--plan", "p.json"], capfd)["main"]
    assert {"ours", "given", "loss", "is_tie"} <= told.keys() <= documented("compare")


def test_a_report_of_a_profile_has_its_times(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    options = "--database c.sqlite --backends openblas tvm --seconds 0.05 --report r.json"
    profile = printed(["profile", "m.onnx", *options.split()], capfd)
    assert profile.keys() == documented("profile")
    plan = json.loads((folder / "r.json").read_text())["main"]
    calls = {tuple(call["layers"]): call for kernel in profile["kernels"] for call in kernel["calls"]}
    for kernel, time in zip(plan["kernels"], plan["in_place"]["kernels"], strict=True):
        call = calls[tuple(kernel["bindings"])]
        assert time == {key: call[f"{name}seconds"] for key, name in SPREAD.items()}
    assert plan["measured_seconds"] == plan["in_place"]["program"] == profile["seconds"]
    assert cli.main(["check", "r.json"]) == 0


def test_a_saved_program_is_checked_against_its_model(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its candidates, and the problem that the costs in the database make of them."""
    monkeypatch.chdir(folder)
    words = ["m.onnx", "--database", "c.sqlite", "--backends", "openblas", "tvm"]
    assert cli.main(["compile", *words, "-o", "ours.so", "-q"]) == 0
    capfd.readouterr()
    assert cli.main(["check", "ours.so", "--model", *words[:1], *words[3:], "-q"]) == 0
    assert "; its candidates are those of the model" in capfd.readouterr().out
    assert cli.main(["check", "ours.so", "--model", *words, "-q"]) == 0
    assert capfd.readouterr().out.startswith("main: proved: ")
    assert cli.main(["check", "ours.so", "--model", "m.onnx", "--backends", "tvm", "-q"]) == 1
    assert "main: does not hold: candidate 0 is " in capfd.readouterr().out


def test_what_does_not_hold_is_data_and_an_exit_code(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    # A runtime's program has no plan of kernels, and may be the fastest.
    asked = ["--database", "c.sqlite", "--backends", "openblas", "tvm", "--report", "own.json", "-q"]
    assert cli.main(["compile", "m.onnx", *asked]) == 0
    plan = json.loads((folder / "own.json").read_text())
    plan["main"]["seconds"] *= 2
    (folder / "forged.json").write_text(json.dumps(plan))
    capfd.readouterr()
    assert cli.main(["check", "forged.json", "--json", "-q"]) == 1
    out, err = capfd.readouterr()
    assert json.loads(out)["plans"]["main"]["holds"] is False
    assert err == "unity-collage: 1 of 1 plans in forged.json do not hold\n"
