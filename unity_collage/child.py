"""How our processes start: ``python -m unity_collage.child MODULE ARGUMENT...`` runs MODULE without PyTorch.

``tvm_ffi`` imports PyTorch wherever it is installed, for tensors that nobody passes here: 1.6 s of the 2.2 s that a
worker took to start, and the libraries of another thread pool. Who needs it can still import it.
"""

from __future__ import annotations

import runpy
import sys
from importlib import import_module

sys.modules["torch"] = None  # type: ignore[assignment]  # so Python marks what cannot be imported
import_module("tvm_ffi")
del sys.modules["torch"]

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
