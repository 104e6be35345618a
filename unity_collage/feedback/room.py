"""Whether there is memory for one more program of a model with many weights."""

from __future__ import annotations

from tvm.ir import IRModule

from ..lowering.live_memory import weights_nbytes
from ..machine.memory import available_bytes

OF_OURS, OF_A_PLAN, OF_A_RUNTIME = 5, 6, 8
"""How many copies of the weights a program takes until it is timed, here and in the process that runs it.

Found with forty products of 2048 x 2048. Packing makes one copy, and TVM writes a program by way of two more. The
process that runs it maps the file, and a library may pack again. A model goes to a runtime as an ONNX file, of which
both processes have a copy.
"""
_USABLE = 0.9
"""The part of the available memory that is used at most."""


def why_no_room(imported: IRModule, copies: int) -> str | None:
    """Why a program of the module ``imported`` that takes ``copies`` of its weights has no room here, or None."""
    needed, available = copies * weights_nbytes(imported), available_bytes()
    if needed <= _USABLE * available:
        return None
    return f"it may take {needed / 2**30:.1f} GiB of memory, and {available / 2**30:.1f} are available"
