"""Whether there is memory for one more program of a model with many weights."""

from __future__ import annotations

from tvm.ir import IRModule

from ..lowering.live_memory import weights_nbytes
from ..machine.memory import available_bytes

OF_OURS, OF_A_PLAN, OF_A_RUNTIME = 3, 4, 5
"""How many copies of the weights a program takes until it is timed, here and in the process that runs it.

Found with forty products of 2048 x 2048, and one more for the file where temporary files are in memory. Packing makes
one copy, the process that runs the program another, and a library may pack again. For a runtime this process and the
other one have a copy of its model, and the runtime packs.
"""
_USABLE = 0.9
"""The part of the available memory that is used at most."""


def why_no_room(imported: IRModule, copies: int) -> str | None:
    """Why a program of the module ``imported`` that takes ``copies`` of its weights has no room here, or None."""
    needed, available = copies * weights_nbytes(imported), available_bytes()
    if needed <= _USABLE * available:
        return None
    return f"it may take {needed / 2**30:.1f} GiB of memory, and {available / 2**30:.1f} are available"
