"""The command line: one file for each command, and ``options`` for the options that they share."""

from __future__ import annotations


def command() -> int:
    """The entry point of ``unity-collage``. It takes no PyTorch models, so TVM is imported without PyTorch."""
    from ..processes.launcher import import_tvm_without_torch

    import_tvm_without_torch()
    from .main import main

    return main()
