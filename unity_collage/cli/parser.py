"""The parser of the command line: one line for each mistake, and options that all commands have."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from ..errors import with_names
from .exit_codes import USAGE

PROGRAM = "unity-collage"


class Parser(argparse.ArgumentParser):
    """A parser that tells each mistake in one line, with the name that was probably meant."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self._words: list[str] = []
        # Commands have these options too; there an absent one must not undo what stands before the command.
        self.add_argument(
            "-q", "--quiet", action="store_true", default=argparse.SUPPRESS, help="do not show progress"
        )
        self.add_argument(
            "-v",
            "--verbose",
            action="store_true",
            default=argparse.SUPPRESS,
            help="also show what is logged: why kernels have no cost, processes that are started again",
        )

    def parse_known_args(self, *arguments: Any, **named: Any) -> tuple[Any, list[str]]:
        """The options; an argument that no option takes ends the program here, where its command is known."""
        self._words = [str(word) for word in (arguments[0] if arguments else None) or ()]
        options, rest = super().parse_known_args(*arguments, **named)
        if rest:
            self._refuse(self._unknown(rest))
        return options, rest

    def error(self, message: str) -> NoReturn:
        """End the program with one line about a mistake."""
        greedy = [text for action in self._actions if action.nargs == "+" for text in action.option_strings]
        taken = next((word for word in self._words if word in greedy), None)
        if message.endswith(("required: MODEL", "required: FIRST")) and taken is not None:
            message += f" (write it before {taken}, which takes all that follows)"
        if message.endswith("-options: expected one argument"):
            option = message.split()[1].rstrip(":")
            message += f" (write it in quotes behind =, as in {option}='--precision bf16')"
        self._refuse(f"{message}{' See' if message.endswith('?') else '; see'} {self.prog} --help")

    def _refuse(self, text: str) -> NoReturn:
        self.exit(USAGE, f"{PROGRAM}: {text}\n")

    def _unknown(self, rest: Sequence[str]) -> str:
        command = self.prog.removeprefix(f"{PROGRAM} ")
        option = next((word for word in rest if word.startswith("-")), None)
        if option is None:
            return f"{command} does not take the argument {rest[0]!r}; see {self.prog} --help"
        name = option.partition("=")[0]
        known = [text for action in self._actions for text in action.option_strings if text.startswith("--")]
        lacking = f"there is no option {name}" if command == PROGRAM else f"{command} has no option {name}"
        text = with_names(lacking, name, known, 0)
        return f"{text}{' See' if text.endswith('?') else '; see'} {self.prog} --help"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Called by argparse with each value; its own text lists the values and does not say which one is close."""
        if action.choices is None or value in action.choices:
            return
        if isinstance(action, argparse._SubParsersAction):
            text = f"no {str(action.metavar).lower()} named {str(value)!r}"
        else:
            text = f"{'/'.join(action.option_strings) or action.metavar} has no value {str(value)!r}"
        self._refuse(with_names(text, str(value), [str(choice) for choice in action.choices]))
