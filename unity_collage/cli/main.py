"""Compile an ONNX model into a program that mixes kernel libraries by measured cost."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .. import __version__, runtime
from ..errors import CollageError
from . import backends, bench, check, compile, db, explain
from .options import positive

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C has ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. An error that the user can fix is one line on standard error."""
    options = _parser().parse_args(arguments)
    try:
        if options.threads is not None:
            runtime.set_num_threads(options.threads)
        options.run(options)
    except (CollageError, OSError) as error:
        print(f"unity-collage: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("unity-collage: interrupted; all costs measured so far are stored", file=sys.stderr)
        return INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="unity-collage", description=__doc__)
    parser.add_argument("--version", action="version", version=f"unity-collage {__version__}")
    parser.add_argument(
        "--threads",
        type=positive,
        metavar="N",
        help="the number of threads of every kernel (default: the usable cores)",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (compile, bench, backends, explain, check, db):
        command.add_command(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
