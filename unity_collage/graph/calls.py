"""The operators that a sub-graph's function calls."""

from __future__ import annotations

from tvm import ir, relax


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
