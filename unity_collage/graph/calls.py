"""The operators and external functions that functions call."""

from __future__ import annotations

from tvm import ir, relax
from tvm.ir import IRModule


def calls(func: relax.Function) -> list[relax.Call]:
    """All calls of operators in ``func``, in order."""
    values = [binding.value for block in func.body.blocks for binding in block.bindings]
    return [value for value in values if isinstance(value, relax.Call) and isinstance(value.op, ir.Op)]


def op_name(value: relax.Expr) -> str:
    """The name of the operator that ``value`` calls, such as ``relax.add``; ``""`` if it calls none."""
    return value.op.name if isinstance(value, relax.Call) and isinstance(value.op, ir.Op) else ""


def operators(func: relax.Function) -> frozenset[str]:
    """The names of the operators that ``func`` calls; ``call`` stands for a call of anything else."""
    values = [binding.value for block in func.body.blocks for binding in block.bindings]
    called = [value.op for value in values if isinstance(value, relax.Call)]
    return frozenset(op.name if isinstance(op, ir.Op) else "call" for op in called)


def external_symbols(mod: IRModule) -> set[str]:
    """The symbols of the external functions that a module names."""
    symbols: set[str] = set()

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.ExternFunc):
            symbols.add(str(expr.global_symbol))

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)
    return symbols
