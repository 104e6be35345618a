"""Which operators of PyTorch a program calls: a note on its executable, for the facts of a saved program."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.ir import IRModule

from ..runtime.torch_calls import NOTE, operators_among


def with_torch_calls(executable: relax.VMExecutable, lowered: IRModule) -> relax.VMExecutable:
    """``executable`` with a note of the operators of PyTorch that ``lowered`` calls."""
    symbols: set[str] = set()

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.ExternFunc):
            symbols.add(str(expr.global_symbol))

    for func in lowered.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)
    setattr(executable, NOTE, operators_among(symbols))
    return executable
