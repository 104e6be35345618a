"""How our own processes start: ``python -m unity_collage.processes.launcher MODULE ARGUMENT...``.

MODULE runs without PyTorch: TVM imports it wherever it is installed, for tensors that are not passed here. That would be
most of the time that a worker takes to start, and would load the libraries of another thread pool. A module that needs
PyTorch can still import it.
"""

from __future__ import annotations

import runpy
import sys
from importlib import import_module


def import_tvm_without_torch() -> None:
    """Import TVM as if PyTorch were not installed."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # so Python marks what cannot be imported
    import_module("tvm.relax")
    del sys.modules["torch"]


if __name__ == "__main__":
    import_tvm_without_torch()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
