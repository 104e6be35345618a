"""Each file argument of each command, with files that are something else: one line says so, and no file changes."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import unity_collage as uc
from unity_collage.cli import main as cli
from unity_collage.cli.exit_codes import FAILED, USAGE

NOT_FILES = {
    "'OPTIONS'", "DAYS", "DEVICE", "ERROR", "KEY", "KIND", "N", "NAME", "NAME=SIZE", "NAME=SIZES", "NAME=VALUE",
    "P", "P%", "RUNTIME", "SHELL", "SIZE", "TARGET", "TIME", "TRACKER:PORT", "TRIALS", "package.module:VALUE",
}  # fmt: skip
"""What stands for arguments that are not files; all others are."""

WRITTEN = {
    **dict.fromkeys(
        ("compile", "bind", "bisect", "profile", "diff"), ("output", "bundle", "report", "trace")
    ),
    "db export": ("file",),
}
"""Files that commands write; ``examples`` reads none, and ``doctor`` prints a report about whatever it is given."""

RIGHT = {
    "model": "model.onnx", "first": "program.so", "second": "program.so", "program": "program.so", "what": "program.so",
    "file": "new.jsonl", "files": "export.jsonl", "others": "costs.sqlite", "values": "n=1", "plan": "plan.json",
    "output": "new.onnx",
}  # fmt: skip
"""Arguments that would be right, by their names in the parser."""

RIGHT_FOR = {
    ("db diff", "first"): {"second": "costs.sqlite"},
    ("db diff", "second"): {"first": "costs.sqlite"},
    ("profile", "compiled_from"): {"model": "program.so"},
}
"""What the other arguments of a command need, by command and argument."""

MORE = {"db prune": ("--dry-run", "--stale")}

FITS = {
    "model.onnx": ("model", "first", "second", "compiled_from"),
    "program.so": ("program", "what", "first", "second"),
    "inputs.npz": ("verify", "inputs"),
    **dict.fromkeys(("empty.so", "missing", "missing.onnx"), ("database",)),
}
"""Files that are not wrong for arguments of these names: SQLite makes a database of an empty file, or a new one."""

KINDS = (
    "model.onnx", "program.so", "library.so", "empty.so", "bytes.so", "bytes.onnx", "bytes.pt2", "bytes.json",
    "bytes.npz", "bytes.py", "bytes", "other.json", "page.html", "words.txt", "inputs.npz", "folder",
    "folder.onnx", "missing", "missing.onnx",
)  # fmt: skip


def commands(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, list[argparse.Action]]]:
    """The commands and actions of the parser, and their arguments."""
    deeper = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for inner, command in deeper[0].choices.items() if deeper else ():
        yield from commands(command, f"{name} {inner}".strip())
    if not deeper:
        yield name, parser._actions


FILES = [
    pytest.param(name, action.dest, id=f"{name} {action.dest}".replace(" ", "-"))
    for name, actions in commands(cli.parser_of())
    for action in actions
    if action.metavar
    and str(action.metavar) not in NOT_FILES
    and action.dest not in WRITTEN.get(name, ())
    and name not in ("examples", "doctor")
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each kind."""
    folder = tmp_path_factory.mktemp("files")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    uc.compile(model, measure=False, progress=False).save(folder / "program.so")
    shutil.copy(json.__file__, folder / "words.txt")
    shutil.copy(np.linalg._umath_linalg.__file__, folder / "library.so")
    (folder / "empty.so").touch()
    for name in KINDS:
        if name.startswith("bytes"):
            (folder / name).write_bytes(bytes(range(255, 0, -1)) * 9)
        elif name.startswith("folder"):
            (folder / name).mkdir()
    (folder / "other.json").write_text('{"a": [1]}')
    (folder / "plan.json").write_text('{"main": {"kernels": []}}')
    (folder / "page.html").write_text("<!doctype html>")
    uc.CostDatabase(folder / "costs.sqlite")
    np.savez(folder / "inputs.npz", x=np.zeros((2, 3), np.float32))
    return folder


def words_of(command: str, dest: str, wrong: str) -> list[str]:
    """The command with ``wrong`` for one of its files, and what would be right for all that is required."""
    actions = dict(commands(cli.parser_of(command.split()[0])))[command]
    right = {**RIGHT, **RIGHT_FOR.get((command, dest), {})}
    words = ["-q", *command.split()]
    for action in actions:
        if action.dest != dest and (not action.required or action.dest == "help"):
            continue
        value = wrong if action.dest == dest else right[action.dest]
        words += [*action.option_strings[:1], value]
    return [*words, *MORE.get(command, ())]


def contents(folder: Path) -> dict[str, bytes | None]:
    there = (
        each for each in folder.iterdir() if not each.name.startswith("costs.sqlite")
    )  # SQLite tidies its log
    return {each.name: each.read_bytes() if each.is_file() else None for each in there}


@pytest.mark.parametrize(("command", "dest"), FILES)
def test_a_file_of_another_kind_is_one_line_and_changes_nothing(
    command: str,
    dest: str,
    prepared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(prepared)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = contents(prepared)
    for wrong in KINDS:
        if dest in FITS.get(wrong, ()):
            continue
        try:
            code = cli.main(words_of(command, dest, wrong))
        except SystemExit as ended:
            code = ended.code
        out, err = capsys.readouterr()
        assert code in (FAILED, USAGE) and not out, (wrong, code, out, err)
        (line,) = err.splitlines()
        assert line.startswith("unity-collage: "), (wrong, line)
        assert not any(each in line for each in ("codec", "Errno", "Traceback", "fault of unity")), (
            wrong,
            line,
        )
        assert contents(prepared) == before, wrong


@pytest.mark.parametrize("kind", ["costs.sqlite", "model.onnx", "program.so", "page.html"])
def test_an_export_overwrites_nothing_but_an_export(
    kind: str, prepared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(prepared)
    uc.CostDatabase("own.sqlite")
    before = (prepared / kind).read_bytes()
    for more in ((), ("--pack",)):
        assert cli.main(["db", "export", kind, *more, "--database", "own.sqlite"]) == FAILED
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"unity-collage: {kind} is ") and (prepared / kind).read_bytes() == before
    if kind == "costs.sqlite":
        assert line.endswith("db export costs.jsonl --database costs.sqlite")


def test_an_export_overwrites_an_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    uc.CostDatabase("costs.sqlite")
    for _ in range(2):
        assert cli.main(["-q", "db", "export", "costs.jsonl", "--database", "costs.sqlite"]) == 0
    (tmp_path / "costs.jsonl").write_bytes(b"")
    assert cli.main(["-q", "db", "export", "costs.jsonl", "--database", "costs.sqlite"]) == 0
