"""Whether kernels for a target can run on this machine, where they would be measured."""

from __future__ import annotations

import os

from tvm.target import Target

from ..calling.processor import instruction_sets, why_not_here
from ..runtime import cuda
from ..target import is_cuda, processor_of


def why_not_measured(target: Target) -> str | None:
    """Why kernels for ``target`` cannot be measured on this machine; None if they can."""
    if is_cuda(target):
        return (
            None if (reason := cuda.why_unavailable()) is None else f"kernels for a GPU run there: {reason}"
        )
    needed, here = processor_of(target), os.uname().machine
    reason = (
        f"it is for {needed}, and this processor is {here}"
        if needed != here
        else why_not_here(instruction_sets(target))
    )
    named = target.attrs.get("mcpu") or target.kind.name
    return None if reason is None else f"kernels for {named} cannot be measured here: {reason}"
