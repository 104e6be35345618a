"""The command line: a file a command, the options that they share in ``options``."""

from __future__ import annotations


def command() -> int:
    """``unity-collage``; it takes no models of PyTorch, so TVM need not import that."""
    from ..processes.launcher import import_tvm_without_torch

    import_tvm_without_torch()
    from .main import main

    return main()
