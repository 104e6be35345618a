"""The parser of the command line: one grammar, one line for each mistake, and options that all commands have."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import islice
from typing import Any, NoReturn

from ..defaults import FILES_OF_TORCH
from ..errors import with_names
from .exit_codes import USAGE
from .option_types import NamesAction, names_in

PROGRAM = "unity-collage"

_FILES = (".onnx", *FILES_OF_TORCH, ".so", ".json", ".py")
"""Suffixes of arguments that are files, and not names in a list."""


class _OnceAction(argparse.Action):
    """Sets a value; an option that gives another one is a mistake."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        assert isinstance(parser, Parser)
        if option is not None and parser.given.setdefault(self.dest, values) != values:
            raise argparse.ArgumentError(
                self, f"it is given twice, with {parser.given[self.dest]} and {values}"
            )
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser that reports each mistake in one line, with the name that was probably meant."""

    def __init__(self, *arguments: Any, **named: Any):
        # An abbreviation of an option is refused: its meaning would change with the next new option.
        super().__init__(*arguments, **{"allow_abbrev": False, **named})
        self.register("action", None, _OnceAction)
        self.register("action", "store", _OnceAction)
        self._words: list[str] = []
        self.given: dict[str, Any] = {}
        """The values of options that were read, by the names of their attributes."""
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
        words = arguments[0] if arguments else None
        self._words = [str(word) for word in (sys.argv[1:] if words is None else words)]
        self.given = {}
        options, rest = super().parse_known_args(self._arguments_first(), *arguments[1:], **named)
        if rest:
            self._refuse(self._unknown(rest))
        return options, rest

    def _arguments_first(self) -> list[str]:
        """The words with the positional arguments moved to the front: a model may stand anywhere, even behind a list
        of names.
        """
        if any(isinstance(action, argparse._SubParsersAction) for action in self._actions):
            return self._words
        arguments: list[str] = []
        options: list[str] = []
        words = iter(self._words)
        takes_list = False
        for word in words:
            action = self._option_string_actions.get(word)
            if word == "--":
                return [*arguments, *options, word, *words]
            if word.startswith("-") and word != "-":
                options.append(word)
                takes_list = action is not None and action.nargs == "+"
                if action is not None and action.nargs is None:
                    options += islice(words, 1)
            elif takes_list and not word.endswith(_FILES):
                options.append(word)
            else:
                arguments.append(word)
        return [*arguments, *options]

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
        """Called by argparse with each value. argparse's own message lists the values, but does not suggest the
        closest one.
        """
        values = names_in([value]) if isinstance(action, NamesAction) else [value]
        unknown = [each for each in values if action.choices is not None and each not in action.choices]
        if not unknown:
            return
        if isinstance(action, argparse._SubParsersAction):
            text = f"no {str(action.metavar).lower()} named {str(value)!r}"
        else:
            text = f"{'/'.join(action.option_strings) or action.metavar} has no value {str(unknown[0])!r}"
        self._refuse(with_names(text, str(unknown[0]), [str(choice) for choice in action.choices or ()]))
