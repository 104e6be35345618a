"""Starts our own processes: ``python -m unity_collage.processes.launcher MODULE ARGUMENT...``.

MODULE runs without PyTorch, which TVM imports wherever it is installed. The import would take most of the time that a
worker needs to start, and would load another thread pool. A module that needs PyTorch can still import it.
"""

from __future__ import annotations

import runpy
import sys

from ..ffi import import_without_torch


def run(command: list[str]) -> None:
    """Run a module, the first of ``command``, as the program, with the rest as its arguments."""
    import_without_torch("tvm.relax")
    sys.argv[:] = command
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run(sys.argv[1:])
