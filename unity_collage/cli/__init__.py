"""The command line: one file for each command, and ``options`` for the options that they share."""

from __future__ import annotations

import re
import signal
import sys
import time
from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext

from ..errors import CollageError, first_line
from ..ffi import import_without_torch
from ..progress import Report, shown
from .exit_codes import INTERRUPTED

STARTED = time.monotonic()
"""When the command began, in seconds of the monotonic clock."""

_LONG = ("bench", "bisect", "check", "compare", "compile", "diff", "explain", "profile")
"""Commands that show progress from their start on: TVM takes seconds to load."""

_QUIET = re.compile("-[qv]*q[qv]*|--quiet")


def command() -> int:
    """The entry point of ``unity-collage``."""
    try:
        from .main import main

        return main()
    except KeyboardInterrupt:  # while the command line itself is loaded, or once more while its end is told
        return interrupted()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is left is to leave: without a traceback


def interrupted() -> int:
    """Tell that Ctrl-C has ended the command; the result is its exit code."""
    print("unity-collage: interrupted; all costs measured so far are stored", file=sys.stderr)
    return INTERRUPTED


def load_tvm() -> None:
    """Import TVM, without PyTorch, which few models need; a command that takes long says so, unless it is quiet.

    It may be called before the options are known.
    """
    if "tvm.relax" in sys.modules:
        return
    if any(name in sys.argv[1:4] for name in _LONG) and not any(map(_QUIET.fullmatch, sys.argv)):
        tell("loading TVM")
    try:
        import_without_torch("tvm.relax")
    except (ImportError, OSError) as error:
        raise CollageError(
            f"TVM cannot be imported: {first_line(error)}: see unity-collage doctor"
        ) from error


def tell(what: str) -> None:
    """Print what the command does at this moment."""
    print(f"[{time.monotonic() - STARTED:3.0f} s] {what}", file=sys.stderr, flush=True)


def progress(options: Namespace, first: str = "starting") -> AbstractContextManager[Report]:
    """A function that shows what is being done, ``first`` before its first call; it does nothing for ``--quiet``."""
    return nullcontext(lambda *_: None) if options.quiet else shown(first, STARTED)
