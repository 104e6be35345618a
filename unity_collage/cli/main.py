"""Compile a model of ONNX or PyTorch into a program that mixes kernel libraries by measured cost."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from tempfile import NamedTemporaryFile

from .. import __version__
from ..errors import CollageError, first_line
from ..machine.environment import use_threads
from ..runtime.libraries import tvm_runtime
from . import interrupted
from .exit_codes import CUT_OFF, DONE, FAILED, FAULT, USAGE, UsageError, listed
from .files import check_read
from .loading import load_for
from .logs import logs_shown, one_line, warnings_shown
from .mistakes import check_options
from .options import add_threads
from .parser import PROGRAM, Parser

COMMANDS = (
    "compile",
    "bench",
    "profile",
    "backends",
    "bind",
    "explain",
    "compare",
    "diff",
    "bisect",
    "info",
    "check",
    "db",
    "examples",
    "doctor",
    "completion",
)

_WITHOUT_TVM = ("doctor", "completion", "examples")

_LIGHT = ("compile", *_WITHOUT_TVM)
"""Commands that do without TVM's compiler, or that load it themselves."""

_EPILOG = """\
A model to try:  unity-collage examples small -o model.onnx
A first compile measures kernels, for half a minute:  unity-collage compile model.onnx -o model.so
Why a kernel was chosen:  unity-collage explain model.onnx
What is installed here and what is missing:  unity-collage doctor

exit codes:
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. An error that the user can fix is one line on standard error."""
    _open_closed_streams()
    _print_every_name()
    try:
        return _done(sys.argv[1:] if arguments is None else arguments)
    except BrokenPipeError:
        _discard_output()
        return CUT_OFF
    except Warning as warning:  # -W error makes an error of it
        print(f"{PROGRAM}: {one_line(warning)}", file=sys.stderr)
        return FAILED
    except (CollageError, OSError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return USAGE if isinstance(error, UsageError) else FAILED
    except KeyboardInterrupt:
        return interrupted()
    except Exception as error:  # a fault of this package: its details go to a file
        print(f"{PROGRAM}: {_fault(error)}", file=sys.stderr)
        return FAULT


def _done(words: Sequence[str]) -> int:
    """Run the command of these words; a mistake in them ends the process by SystemExit."""
    parser = parser_of(_named(words))
    if not words:
        parser.print_help(sys.stderr)
        return USAGE
    options = parser.parse_args(words)
    with warnings_shown(), logs_shown(options.verbose):
        _run(options)
    return DONE


def _run(options: argparse.Namespace) -> None:
    options.check(options)
    if options.command not in _WITHOUT_TVM and tvm_runtime() is None:
        raise CollageError("TVM is not installed: pip install apache-tvm, and see unity-collage doctor")
    check_read(options)
    if options.command not in _LIGHT:
        load_for(options)
    if options.threads is not None:
        use_threads(options.threads)
    options.run(options)
    sys.stdout.flush()


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


def _open_closed_streams() -> None:
    """Let a command run without standard streams: what it prints is lost, and no other file gets their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123  # until the end


def _print_every_name() -> None:
    """Let names that the terminal's encoding lacks be printed as escapes, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Let Python's last flush of standard output succeed after its reader has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _named(words: Sequence[str]) -> str | None:
    """The command that is called, unless it is misspelt or missing."""
    named = next((word for word in words if not word.startswith("-") and not word.isdecimal()), None)
    return named if named in COMMANDS else None


def parser_of(named: str | None = None) -> Parser:
    """The parser of one command, or of all: the others need not be imported."""
    parser = Parser(
        prog=PROGRAM,
        description=__doc__,
        epilog=_EPILOG + listed(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    parser.set_defaults(quiet=False, verbose=False, check=check_options)
    add_threads(parser)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name in COMMANDS if named is None else (named,):
        import_module(f".{name}", __package__).add_command(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
