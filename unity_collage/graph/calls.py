"""The bindings of functions, and the operators and external functions that they call."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tvm import ir, relax
from tvm.ir import IRModule


def bindings_in(
    body: relax.Expr, enters: Callable[[relax.Function], bool] = lambda _: True
) -> Iterator[relax.Binding]:
    """The bindings of a body, of its branches, and of the functions inside it that ``enters`` accepts.

    Those of a branch or function come before the binding that holds it.
    """
    if not isinstance(body, relax.SeqExpr):
        return
    for binding in (binding for block in body.blocks for binding in block.bindings):
        value = binding.value
        if isinstance(value, relax.If):
            yield from bindings_in(value.true_branch, enters)
            yield from bindings_in(value.false_branch, enters)
        elif isinstance(value, relax.Function) and enters(value):
            yield from bindings_in(value.body, enters)
        yield binding


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
