"""The command line: one file for each command, and ``options`` for the options that they share."""

from __future__ import annotations

from ..ffi import import_without_torch


def command() -> int:
    """The entry point of ``unity-collage``. Few models need PyTorch, so TVM is imported without it."""
    import_without_torch("tvm.relax")
    from .main import main

    return main()
