"""TVM's FFI, loaded without PyTorch.

TVM and its FFI import PyTorch wherever it is installed. That takes seconds and loads another thread pool, and a process
that runs a program, measures kernels or compiles a file needs neither. Where PyTorch is imported already it stays.
"""

from __future__ import annotations

import sys
from importlib import import_module


def import_without_torch(module: str) -> None:
    """Import a module as if PyTorch were not installed. A later ``import torch`` works as ever."""
    if "torch" in sys.modules:
        import_module(module)
        return
    sys.modules["torch"] = None  # type: ignore[assignment]  # Python's mark for a module that cannot be imported
    try:
        import_module(module)
    finally:
        del sys.modules["torch"]


import_without_torch("tvm_ffi")
import tvm_ffi as tvm_ffi  # noqa: E402 - after the import that leaves PyTorch out
