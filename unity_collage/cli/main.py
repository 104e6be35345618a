"""Compile an ONNX model into a program that mixes kernel libraries by measured cost."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from tempfile import NamedTemporaryFile

from .. import __version__, runtime
from ..errors import CollageError, first_line
from . import load_tvm
from .options import add_threads

_COMMANDS = ("compile", "bench", "profile", "backends", "explain", "compare", "info", "check", "db")

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C has ended."""

CUT_OFF = 141
"""The exit code of a command whose output is not read any more, as shells count it."""

FAULT = 70
"""The exit code for a fault of this program itself: ``EX_SOFTWARE`` of ``sysexits.h``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. An error that the user can fix is one line on standard error."""
    _print_every_name()
    options = _parser(sys.argv[1:] if arguments is None else arguments).parse_args(arguments)
    try:
        if options.threads is not None:
            runtime.set_num_threads(options.threads)
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return CUT_OFF
    except (CollageError, OSError) as error:
        print(f"unity-collage: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("unity-collage: interrupted; all costs measured so far are stored", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:  # a fault of our own: what is known about it goes to a file
        print(f"unity-collage: {_fault(error)}", file=sys.stderr)
        return FAULT
    return 0


def _fault(error: Exception) -> str:
    """A line about a fault, whose traceback is written to a new file."""
    text = f"this is a fault of unity-collage: {type(error).__name__}: {first_line(error)}"
    try:
        with NamedTemporaryFile(
            "w",
            prefix="unity-collage-",
            suffix=".txt",
            encoding="utf-8",
            errors="backslashreplace",
            delete=False,
        ) as file:
            file.writelines(traceback.format_exception(error))
    except OSError:
        return text
    return f"{text}; please report it with {file.name}"


def _print_every_name() -> None:
    """Let names that the terminal's encoding lacks be printed as escapes, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Let Python's own last flush of standard output succeed: nobody reads it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all commands, or of the one that is called: the others need not be imported."""
    parser = argparse.ArgumentParser(prog="unity-collage", description=__doc__)
    parser.add_argument("--version", action="version", version=f"unity-collage {__version__}")
    add_threads(parser)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    named = next((word for word in arguments if word in _COMMANDS), None)
    if named != "compile":  # which may do without
        load_tvm()
    for name in _COMMANDS if named is None else (named,):
        import_module(f".{name}", __package__).add_command(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
