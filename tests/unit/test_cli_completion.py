"""``unity-collage completion``: the scripts that shells read."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli_mistakes import COMMANDS

from unity_collage.cli import main as cli
from unity_collage.cli.completion import script

FUNCTION = "_shtab_unity_collage"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_has_all_commands_and_options(shell: str) -> None:
    text = script(shell)
    for name, parser in COMMANDS.items():
        assert name.rpartition(" ")[2] in text
        for option in parser._option_string_actions:
            told = option.lstrip("-") if shell == "fish" else option
            assert told in text, (name, option)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_accepts_its_script(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    (tmp_path / "script").write_text(script(shell))
    subprocess.run([shell, "-n", tmp_path / "script"], check=True)


def completed(script_file: Path, *words: str) -> list[str]:
    """What bash offers behind these words, the last of which is being typed."""
    text = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); '
        f'{FUNCTION} "$1" "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = ["bash", "-c", text, "bash", str(script_file), "unity-collage", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=script_file.parent)
    return done.stdout.split()


def test_bash_completes_commands_options_values_and_files(tmp_path: Path) -> None:
    path = tmp_path / "completion.bash"
    path.write_text(script("bash"))
    (tmp_path / "model.onnx").touch()
    assert completed(path, "co") == ["compile", "compare", "completion"]
    assert completed(path, "db", "pr") == ["prune"]
    assert completed(path, "compile", "--prec") == ["--precision"]
    assert completed(path, "compile", "--precision", "b") == ["bf16"]
    assert completed(path, "compile", "--backends", "one") == ["onednn"]
    assert "mnn" in completed(path, "bench", "model.onnx", "--against", "")
    assert completed(path, "compile", "mod") == ["model.onnx"]


def test_a_script_is_made_without_tvm() -> None:
    code = (
        "import sys; from unity_collage.cli import main as cli; code = cli.main(['completion', 'bash'])\n"
        "print([name for name in ('tvm', 'torch', 'onnx') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n" and FUNCTION in done.stdout


def test_the_command_prints_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("#compdef unity-collage")
