"""What the command line says of a mistake, its exit codes, and the options of all commands."""

from __future__ import annotations

import argparse
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from unity_collage.cli import load_tvm
from unity_collage.cli import main as cli
from unity_collage.cli.exit_codes import EXIT_CODES
from unity_collage.cli.logs import logs_shown
from unity_collage.errors import CollageError, closest, with_names

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "command_line.md").read_text()

MISTAKES = {
    "compil m.onnx": "no command named 'compil'; did you mean compile? There are: compile, bench, ",
    "zzz": "no command named 'zzz'; there are: compile, bench, ",
    "compile m.onnx --backnds onednn": "compile has no option --backnds; did you mean --backends? See unity-collage",
    "compile m.onnx --zzzzzz": "compile has no option --zzzzzz; see unity-collage compile --help",
    "--zzzzzz compile m.onnx": "there is no option --zzzzzz; see unity-collage --help",
    "compile m.onnx --precision BF61": "--precision has no value 'BF61'; did you mean bf16? There are: f32, ",
    "compile a.onnx b.onnx": "compile does not take the argument 'b.onnx'; see unity-collage compile --help",
    "compile m.onnx --budget 3x": "argument --budget: '3x' is not a duration: write 30s, 5m or 1h; see unity-collage",
    "compile --backends onednn model": "the following arguments are required: MODEL (write it before --backends, "
    "which takes all that follows); see unity-collage compile --help",
    "compile m.onnx --target cud": "argument --target: 'cud' is not a target; did you mean cuda? See unity-collage",
    "db infos": "no action named 'infos'; did you mean info? There are: info, list, ",
    "db list --doubtfull": "db list has no option --doubtfull; did you mean --doubtful? See unity-collage db list",
    "db prune --release hang,crsh": "--release has no value 'crsh'; did you mean crash? There are: ",
    "db prune --release crsh": "--release has no value 'crsh'; did you mean crash? There are: ",
    "compile m.onnx --backend onednn": "compile has no option --backend; did you mean --backends? See unity-collage",
    "compile m.onnx --backends , -q": "argument --backends: no name is given; see unity-collage compile --help",
    "compile m.onnx -o a.so --output b.so": "argument -o/--output: it is given twice, with a.so and b.so; see unity",
    "bench m.onnx --rounds 3 --rounds 4": "argument --rounds: it is given twice, with 3 and 4; see unity-collage bench",
    "check onednn --timeout -1": "argument --timeout: '-1' is not a duration: write 30s, 5m or 1h; see unity-collage",
    "completion bsh": "SHELL has no value 'bsh'; did you mean bash? There are: bash, zsh, fish",
    "compile m.onnx --threads 99999": "argument --threads: 99999 threads are more than a program can use: take at",
    "--threads two compile m.onnx": "argument --threads: 'two' is not a positive number; see unity-collage --help",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_with_what_was_meant(mistake: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(mistake.split())
    out, err = capsys.readouterr()
    assert (ended.value.code, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith(f"unity-collage: {MISTAKES[mistake]}")


def test_without_a_command_the_help_is_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "exit codes:" in err and "doctor" in err


def test_a_close_name_is_offered_whatever_its_capitals() -> None:
    assert closest("ONEDN", ["tvm", "onednn"], 1) == ["onednn"]
    assert closest("onednn", ["OneDNN"], 1) == ["OneDNN"]
    assert with_names("no x", "tvn", ["tvm", "onednn"]) == "no x; did you mean tvm? There are: tvm, onednn"
    assert with_names("no x", "zzz", ["tvm"]) == "no x; there are: tvm"
    assert with_names("no x", "zzz", []) == "no x"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ["bench", "m.onnx", "--against", "onnxruntim"],
            "no such runtime; did you mean onnxruntime? There are: ",
        ),
        (["bench", "m.onnx", "--against", "mnn"], "--against mnn: MNN is not installed: pip install MNN"),
        (
            ["bench", "m.onnx", "--against", "ncnn"],
            "ncnn: ncnn and pnnx are not installed: pip install ncnn pnnx",
        ),
        (["bench", "m.pt2", "--against", "openvino"], "openvino: it runs ONNX models, and m.pt2 is not one"),
    ],
)
def test_runtimes_are_looked_at_before_anything_is_compiled(
    arguments: list[str],
    reason: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(arguments[1]).touch()
    found = {"onnxruntime", "openvino"}
    monkeypatch.setattr(
        "unity_collage.profile.peers.runtimes.find_spec", lambda name: name if name in found else None
    )
    assert cli.main([*arguments, "-q"]) == (2 if "no such" in reason else 1)
    assert reason in capsys.readouterr().err


def test_what_tuning_needs_is_looked_for_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("unity_collage.cli.settings.why_not_tuned", lambda: "xgboost missing: pip install it")
    (tmp_path / "m.onnx").touch()
    model = ["compile", str(tmp_path / "m.onnx"), "--database", str(tmp_path / "costs.sqlite")]
    assert cli.main([*model, "--tune", "8", "-q"]) == 1
    assert capsys.readouterr().err == "unity-collage: --tune: xgboost missing: pip install it\n"


def every(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of all commands and actions, by name."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                found[f"{parser.prog} {name}"] = command
                found |= every(command)
    return found


COMMANDS = every(cli.parser_of())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_and_has_the_common_options(name: str) -> None:
    options = COMMANDS[name]._option_string_actions
    assert {"-q", "--quiet", "-v", "--verbose"} <= options.keys()
    assert f"`{name}" in DOCUMENT
    if name not in ("unity-collage db", "unity-collage completion"):
        assert "--json" in options


@pytest.mark.parametrize("before", [True, False])
def test_common_options_stand_before_or_behind_the_command(before: bool) -> None:
    words = ["-q", "-v", "db", "info"] if before else ["db", "info", "-qv"]
    options = cli.parser_of("db").parse_args(words)
    assert options.quiet and options.verbose
    options = cli.parser_of("db").parse_args(["db", "info"])
    assert not options.quiet and not options.verbose


def test_exit_codes_are_those_of_the_document_and_the_help() -> None:
    table = DOCUMENT.partition("## Exit codes")[2].partition("##")[0].replace("\\|", "|")
    told = {
        int(code): meaning for code, meaning in re.findall(r"^\| +(\d+) \| (.*) \|$", table, re.MULTILINE)
    }
    assert told == EXIT_CODES
    text = cli.parser_of().format_help()
    assert all(f"{code}  {meaning}" in text for code, meaning in EXIT_CODES.items())


def test_verbose_shows_what_is_logged_and_only_inside(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("unity_collage.measure.x")
    with logs_shown(verbose=True):
        logger.info("a pack is used")
        logging.getLogger("another").info("not ours")
    logger.info("nobody hears it")
    assert capsys.readouterr().err == "unity_collage.measure.x: a pack is used\n"


def test_a_broken_tvm_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise ImportError("libtvm.so: undefined symbol: x\nmore")

    monkeypatch.delitem(sys.modules, "tvm.relax")
    monkeypatch.setattr("unity_collage.cli.import_without_torch", broken)
    with pytest.raises(
        CollageError, match=r"^TVM cannot be imported: libtvm.so: undefined symbol: x: see unity-"
    ):
        load_tvm()


def test_help_needs_neither_tvm_nor_torch() -> None:
    code = (
        "import sys; from unity_collage.cli import main as cli; cli.parser_of().format_help()\n"
        "print([name for name in ('tvm', 'torch', 'onnx') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_tvm_a_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "tvm_runtime", lambda: None)
    assert cli.main(["compile", "m.onnx"]) == 1
    assert capsys.readouterr().err == (
        "unity-collage: TVM is not installed: pip install apache-tvm, and see unity-collage doctor\n"
    )


def test_a_target_needs_tvm_and_says_so_while_options_are_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: str) -> None:
        raise ImportError("libtvm.so: undefined symbol: x")

    monkeypatch.delitem(sys.modules, "tvm.relax")
    monkeypatch.setattr("unity_collage.cli.import_without_torch", broken)
    assert cli.main(["compile", "m.onnx", "--target", "llvm", "-q"]) == 1
    assert "TVM cannot be imported: libtvm.so" in capsys.readouterr().err


def test_ctrl_c_is_one_line_from_the_beginning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "parser_of", interrupted)
    assert cli.main(["compile", "m.onnx"]) == 130
    assert capsys.readouterr().err == "unity-collage: interrupted; all costs measured so far are stored\n"
