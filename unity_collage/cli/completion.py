"""``unity-collage completion``: print what makes a shell complete commands, options and their values."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ..profile.peers.runtimes import PEERS
from ..runtime.vendors import VENDORS

_FILES = ("FILE", "MODEL", "INPUTS", "FIRST", "SECOND", "OTHER")
"""Prefixes of the names of arguments that are files."""

_SHELLS = ("bash", "zsh", "fish")

_WHERE = """\
to use it, once:
  bash  unity-collage completion bash > ~/.local/share/bash-completion/completions/unity-collage
  zsh   unity-collage completion zsh > FOLDER/_unity-collage, a folder of $fpath
  fish  unity-collage completion fish > ~/.config/fish/completions/unity-collage.fish
"""


def add_command(commands: Any) -> None:
    """Add ``completion`` to ``commands``."""
    text = "print a script that completes commands and options in a shell"
    command = commands.add_parser(
        "completion",
        help=text,
        description=f"{text.capitalize()}. The script starts no Python.",
        epilog=_WHERE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("shell", metavar="SHELL", choices=_SHELLS, help=f"one of {', '.join(_SHELLS)}")
    command.set_defaults(run=_completion)


def _completion(options: argparse.Namespace) -> None:
    sys.stdout.write(script(options.shell))


def script(shell: str) -> str:
    """The script for a shell."""
    import shtab  # pyright: ignore[reportMissingImports]

    from .main import parser_of

    parser = parser_of()
    for action in _all_actions(parser):
        if str(action.metavar).startswith(_FILES):
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks for it
        elif (words := _words(action)) is not None:
            action.choices = words
    return shtab.complete(parser, shell).rstrip() + "\n"


def _words(action: argparse.Action) -> list[str] | None:
    """The values of an option that a shell can complete; None: those that the parser knows, if any."""
    if "--backends" in action.option_strings:
        return [*VENDORS, "tvm", "tvm_openblas", "torch"]
    if "--against" in action.option_strings:
        return list(PEERS)
    if action.option_strings and action.choices is not None:
        return [str(value) for value in action.choices if " " not in str(value)]
    return None


def _all_actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The options and arguments of a parser and of its commands."""
    found: list[argparse.Action] = []
    for action in parser._actions:
        found.append(action)
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                found += _all_actions(command)
    return found
