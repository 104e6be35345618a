"""Whether kernels for a target can run on this machine, where they would be measured."""

from __future__ import annotations

from tvm.target import Target

from ..calling.processor import why_not_run
from ..runtime import cuda
from ..target import is_cuda


def why_not_measured(target: Target) -> str | None:
    """Why kernels for ``target`` cannot be measured on this machine; None if they can."""
    if is_cuda(target) and (reason := cuda.why_unavailable()):
        return f"kernels for a GPU run there: {reason}"
    reason = why_not_run(target)
    named = target.attrs.get("mcpu") or target.kind.name
    return None if reason is None else f"kernels for {named} cannot be measured here: {reason}"
