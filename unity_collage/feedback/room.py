"""Whether there is memory for one more program of a model with many weights."""

from __future__ import annotations

from tvm import relax
from tvm.ir import IRModule

from ..lowering.live_memory import constants_nbytes
from ..machine.memory import available_bytes

OF_OURS, OF_A_PLAN, OF_A_RUNTIME = 5, 6, 8
"""How many copies of the weights a program takes until it is timed, in this process and in that which runs it: ours,
that of another plan, and that of a runtime for whole models. Found with forty products of 2048 x 2048: packing is one
copy, TVM writes a program by way of two more, and the process that runs it maps it and may pack again. A model goes to
a runtime as an ONNX file, of which both sides have a copy.
"""
_USABLE = 0.9
"""The part of the available memory that is used at most."""


def why_no_room(imported: IRModule, copies: int) -> str | None:
    """Why a program of the module ``imported`` that takes ``copies`` of its weights has no room here, or None."""
    functions = (func for func in imported.functions.values() if isinstance(func, relax.Function))
    needed, available = copies * constants_nbytes(functions), available_bytes()
    if needed <= _USABLE * available:
        return None
    return f"it may take {needed / 2**30:.1f} GiB of memory, and {available / 2**30:.1f} are available"
