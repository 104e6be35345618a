"""The command line: one file for each command, and ``options`` for the options that they share."""

from __future__ import annotations

import sys
import time

from ..ffi import import_without_torch

STARTED = time.monotonic()
"""When the command began, in seconds of the monotonic clock."""

_LONG = ("bench", "check", "compare", "compile", "explain", "profile")
"""Commands that say what they are doing, from the first moment on: TVM takes seconds to load."""


def command() -> int:
    """The entry point of ``unity-collage``."""
    from .main import main

    return main()


def load_tvm() -> None:
    """Import TVM, without PyTorch, which few models need; a command that takes long says so."""
    if "tvm.relax" in sys.modules:
        return
    if any(name in sys.argv[1:4] for name in _LONG) and not {"-h", "--help"} & {*sys.argv}:
        print(f"[{time.monotonic() - STARTED:3.0f} s] loading TVM", file=sys.stderr, flush=True)
    import_without_torch("tvm.relax")
