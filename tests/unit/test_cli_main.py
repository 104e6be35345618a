"""What the command line does when a command fails, and the comparison that ``--verify`` asks for."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
import pytest

from unity_collage.cli import backends, command, in_place
from unity_collage.cli import compile as compile_command
from unity_collage.cli import main as cli
from unity_collage.cli.verify import add_verify, check_verify
from unity_collage.errors import CollageError
from unity_collage.profile import agreement
from unity_collage.profile.agreement import _agreement, read_inputs


def ended(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    run: Callable[[argparse.Namespace], None],
) -> tuple[int, list[str]]:
    """The exit code and the lines on standard error of a command that does ``run``."""
    monkeypatch.setattr(backends, "_backends", run)
    code = cli.main(["backends"])
    return code, capfd.readouterr().err.splitlines()


def raising(error: BaseException) -> Callable[[argparse.Namespace], None]:
    def run(_options: argparse.Namespace) -> None:
        raise error

    return run


def test_an_unexpected_error_is_a_line_and_a_file(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(cli, "NamedTemporaryFile", partial(NamedTemporaryFile, dir=tmp_path))
    code, lines = ended(monkeypatch, capfd, raising(KeyError("not\nthere")))
    assert (code, len(lines)) == (cli.FAULT, 1)
    found = re.fullmatch(
        r"unity-collage: this is a fault of unity-collage: KeyError: (.*); please report it with (\S+)",
        lines[0],
    )
    assert found is not None and found[1] == r"'not\nthere'"
    assert "in run\n    raise error\nKeyError" in Path(found[2]).read_text()


def test_a_fault_is_told_even_without_a_place_for_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(cli, "NamedTemporaryFile", partial(NamedTemporaryFile, dir=tmp_path / "nowhere"))
    code, lines = ended(monkeypatch, capfd, raising(RecursionError("too deep")))
    assert (code, lines) == (
        cli.FAULT,
        ["unity-collage: this is a fault of unity-collage: RecursionError: too deep"],
    )


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (CollageError("no plan"), 1, ["unity-collage: no plan"]),
        (
            PermissionError(13, "Permission denied", "/x"),
            1,
            ["unity-collage: [Errno 13] Permission denied: '/x'"],
        ),
        (KeyboardInterrupt(), 130, ["unity-collage: interrupted; all costs measured so far are stored"]),
    ],
)
def test_expected_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    lines: list[str],
) -> None:
    assert ended(monkeypatch, capfd, raising(error)) == (code, lines)


def test_a_warning_is_a_line_without_a_place_in_the_code(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def run(_options: argparse.Namespace) -> None:
        for text in ("in two\nlines", "another", "in two\nlines"):
            warnings.warn(text, stacklevel=1)

    before = warnings.showwarning
    assert ended(monkeypatch, capfd, run) == (0, ["warning: in two lines", "warning: another"])
    assert warnings.showwarning is before


@pytest.mark.parametrize("verbose", [False, True])
def test_what_is_logged_is_a_line_with_its_level_or_its_module(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], verbose: bool
) -> None:
    logger = logging.getLogger("unity_collage.measure.packed")
    handlers = [*logging.getLogger("unity_collage").handlers]

    def run(_options: argparse.Namespace) -> None:
        logger.warning("pack %s is not used", "zen5")
        logger.info("2 costs are known")

    monkeypatch.setattr(backends, "_backends", run)
    assert cli.main(["backends", *(["-v"] if verbose else [])]) == 0
    lines = ["warning: pack zen5 is not used", "unity_collage.measure.packed: 2 costs are known"]
    assert capfd.readouterr().err.splitlines() == lines[: 1 + verbose]
    assert logging.getLogger("unity_collage").handlers == handlers


def test_a_warning_that_is_made_an_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ended(monkeypatch, capfd, lambda _: warnings.warn("two\npools", stacklevel=1))
    assert found == (1, ["unity-collage: two pools"])


def test_the_package_run_as_a_module_has_the_exit_code_of_its_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unity_collage", "compile", "missing.onnx"]
    assert subprocess.run(command, capture_output=True, cwd=tmp_path, check=False).returncode == 1


def test_ctrl_c_while_the_commands_are_loaded_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupts() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", interrupts)
    handler = signal.getsignal(signal.SIGINT)
    try:
        assert command() == 130
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL  # no traceback of what is left to do either
    finally:
        signal.signal(signal.SIGINT, handler)
    assert capsys.readouterr().err == "unity-collage: interrupted; all costs measured so far are stored\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_may_have_no_standard_streams(closed: str, tmp_path: Path) -> None:
    """Progress goes nowhere then, and not to standard output; files are written as always."""
    code = (
        "import sys; from unity_collage.cli import main as cli, examples, tell\n"
        "listed = examples._list\n"
        "examples._list = lambda options: [tell('listing'), listed(options)]\n"
        "sys.exit(cli.main(['examples', '--json']))"
    )
    command = f'(exec {closed}; exec {sys.executable} -c "$0") > out; echo $?'
    done = subprocess.run(["bash", "-c", command, code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "0\n"
    out = (tmp_path / "out").read_text()
    assert out == "" if ">&-" in closed.replace("2>&-", "") else json.loads(out).keys() == {"examples"}


def test_nobody_reads_the_output_and_the_encoding_lacks_a_name() -> None:
    code = (
        "import sys; from unity_collage.cli import main as cli, backends\n"
        "backends._backends = lambda _: [print('вход' * 5000) for _ in range(100)]\n"
        "sys.exit(cli.main(['backends']))"
    )
    command = f'{sys.executable} -c "$0" | head -c 12; echo ${{PIPESTATUS[0]}}'
    result = subprocess.run(
        ["bash", "-c", command, code],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (result.stdout, result.stderr) == ("\\u0432\\u0445141\n", "")


def test_a_table_that_nobody_reads_has_the_exit_code_of_other_output(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    monkeypatch.setattr("unity_collage.backends.registry.statuses", list)
    with pytest.raises(BrokenPipeError), os.fdopen(write, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        backends._backends(argparse.Namespace(json=False))


def compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    """The options of a compile whose program has an empty plan and is not written."""
    program = argparse.Namespace(plan={}, explanation={}, kept_since=None, save=lambda _: None)
    monkeypatch.setattr(compile_command, "_program", lambda _: (program, None))
    monkeypatch.setattr(in_place, "add_times", lambda *_: None)
    (folder / "[").mkdir()
    words = ["compile", "m.onnx", "-o", str(folder / "[" / "x].so"), "--report", str(folder / "p.json")]
    return cli.parser_of("compile").parse_args(words)


def test_files_are_written_before_a_reader_of_the_plan_can_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = compiled(tmp_path, monkeypatch)
    monkeypatch.setattr(compile_command, "_show_plans", lambda *_: raising(BrokenPipeError())(options))
    with pytest.raises(BrokenPipeError):
        compile_command._compile(options)
    assert (tmp_path / "p.json").read_text() == "{}\n"


def test_brackets_in_the_name_of_a_file_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compile_command._compile(compiled(tmp_path, monkeypatch))
    assert f"wrote {tmp_path}/[/x].so\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "right", "reason"),
    [
        (np.float32([1, 2]), np.float32([1, 2.001]), None),
        (np.float32([1, 2]), np.float32([1, 2.01]), "is off by 5.0e-03 of its range (allowed 1e-03)"),
        (np.float16([1, 2]), np.float16([1, 2.01]), None),
        (np.float32([1, np.nan]), np.float32([1, 2]), "is infinite or NaN where the reference is finite"),
        (np.float32([1, 2]), np.float32([1, np.inf]), "is finite where the reference is infinite or NaN"),
        (np.float32([1, np.nan]), np.float32([1, np.nan]), None),
        (np.int64([1, 2, 3]), np.int64([1, 5, 6]), "2 of 3 elements differ"),
        (np.int64([1]), np.int32([1]), "int64 (1,), but the reference has int32 (1,)"),
        (np.zeros((1, 2)), np.zeros(2), "float64 (1, 2), but the reference has float64 (2,)"),
        (np.zeros((0, 2)), np.zeros((0, 2)), None),
    ],
)
def test_results_agree_or_say_why_not(value: np.ndarray, right: np.ndarray, reason: str | None) -> None:
    assert _agreement("y", value, right, None).reason == reason


def test_a_tolerance_can_be_given() -> None:
    right, value = np.float32([1, 2]), np.float32([1, 2.01])
    assert _agreement("y", value, right, 1e-2).reason is None
    assert str(_agreement("a/b", value, right, 1e-6)).startswith(
        "'a/b': error 5.0e-03 of the range, is off by 5.0e-03"
    )


def test_inputs_are_named_or_numbered(tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    np.savez(path, **{"a/b": np.ones(2), "вход": np.zeros(1)})
    assert list(read_inputs(path, ["вход", "a/b"])) == ["a/b", "вход"]
    np.savez(path, np.ones(2), np.zeros(1))
    assert {name: value.shape for name, value in read_inputs(path, ["x", "y"]).items()} == {
        "x": (2,),
        "y": (1,),
    }


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"\x93NUMPY", b"text"])
def test_a_file_that_holds_no_inputs_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "inputs.npz").write_bytes(content)
    with pytest.raises(CollageError, match=r"inputs\.npz does not hold inputs: ") as refused:
        read_inputs(tmp_path / "inputs.npz", ["x"])
    assert "\n" not in str(refused.value)


def test_what_cannot_be_compared_is_told_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    add_verify(parser)
    with pytest.raises(CollageError, match=r"no\.npz is not a file"):
        check_verify(parser.parse_args(["m.onnx", "--verify", str(tmp_path / "no.npz")]))
    monkeypatch.setattr(agreement, "find_spec", lambda _: None)
    for model, package in (("m.onnx", "onnxruntime"), ("m.pt2", "torch")):
        with pytest.raises(CollageError, match=f"is not installed: pip install {package}"):
            check_verify(parser.parse_args([model, "--verify", "random"]))
