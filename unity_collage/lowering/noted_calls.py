"""What a program needs to be called elsewhere: notes on its executable, for the facts of a saved program."""

from __future__ import annotations

from tvm import relax
from tvm.ir import IRModule

from ..annotations import EXTERNAL_MODS
from ..graph.calls import external_symbols
from ..runtime import custom_ops, remote_calls, torch_calls, torch_kernels


def with_noted_calls(executable: relax.VMExecutable, lowered: IRModule) -> relax.VMExecutable:
    """``executable`` with notes of what ``lowered`` calls: operators of PyTorch, functions of the user, and those of
    other machines."""
    symbols = external_symbols(lowered)
    modules = lowered.attrs.get(EXTERNAL_MODS, []) if lowered.attrs else []
    called = {*torch_calls.operators_among(symbols), *torch_kernels.operators_in(modules)}
    setattr(executable, torch_calls.NOTE, sorted(called))
    setattr(executable, custom_ops.NOTE, custom_ops.operators_among(symbols))
    setattr(executable, remote_calls.NOTE, remote_calls.functions_among(symbols))
    return executable
