"""Starts our own processes: ``python -m unity_collage.processes.launcher MODULE ARGUMENT...``.

MODULE runs without PyTorch, which TVM imports wherever it is installed. The import would take most of the time that a
worker needs to start, and would load another thread pool. A module that needs PyTorch can still import it.
"""

from __future__ import annotations

import runpy
import sys
from importlib import import_module


def import_tvm_without_torch() -> None:
    """Import TVM as if PyTorch were not installed."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # Python's mark for a module that cannot be imported
    import_module("tvm.relax")
    del sys.modules["torch"]


if __name__ == "__main__":
    import_tvm_without_torch()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
