"""Starts our own processes: ``python -m unity_collage.processes.launcher MODULE ARGUMENT...``.

MODULE runs without PyTorch, which TVM imports wherever it is installed. The import would take most of the time that a
worker needs to start, and would load another thread pool. A module that needs PyTorch can still import it.
"""

from __future__ import annotations

import runpy
import sys

from ..ffi import import_without_torch

if __name__ == "__main__":
    import_without_torch("tvm.relax")
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
