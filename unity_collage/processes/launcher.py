"""How our own processes start: ``python -m unity_collage.processes.launcher MODULE ARGUMENT...`` runs MODULE without PyTorch.

TVM imports PyTorch wherever it is installed, for tensors that nobody passes here: most of the time that a worker took
to start, and the libraries of another thread pool. Who needs it can still import it.
"""

from __future__ import annotations

import runpy
import sys
from importlib import import_module

sys.modules["torch"] = None  # type: ignore[assignment]  # so Python marks what cannot be imported
import_module("tvm.relax")
del sys.modules["torch"]


def command() -> int:
    """``unity-collage``, which reads files of ONNX and no models of PyTorch."""
    main = import_module("unity_collage.cli.main").main
    return main()


if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
