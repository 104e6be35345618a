"""An interpreter that runs a Relax function with numpy, binding by binding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax

from unity_collage.reference.evaluate import evaluate
from unity_collage.reference.literals import is_literal, literal
from unity_collage.reference.values import Call, Unsupported, Value


def run(
    func: relax.Function, inputs: Sequence[Value], mod: ir.IRModule | None = None, *, rounds: bool = True
) -> list[np.ndarray]:
    """The outputs of ``func``: a tuple is flattened, and a shape is returned as a tensor of its sizes.

    ``mod`` has the functions that ``func`` calls. An output may share memory with an input or a constant. Without
    ``rounds``, results with a float type of less than 32 bits stay float32, also the results of ``func``. Raises
    Unsupported with the reason if numpy cannot evaluate an operator.
    """
    return _flat(_Interpreter(mod, rounds).call(func, inputs, {}))


def _flat(value: Value) -> list[np.ndarray]:
    if isinstance(value, tuple) and not all(isinstance(part, int) for part in value):
        return [array for part in value for array in _flat(part)]
    return [np.array(value, dtype=np.int64) if isinstance(value, tuple) else np.asarray(value)]


class _Interpreter:
    """Evaluates expressions in scopes, which map variables and symbolic sizes to values."""

    def __init__(self, mod: ir.IRModule | None, rounds: bool) -> None:
        self._mod, self._rounds = mod, rounds
        self._kinds: tuple[tuple[type | tuple[type, ...], Callable[[Any, dict], Value]], ...] = (
            (ir.Var, self._variable),
            (ir.Call, self._call),
            (ir.Tuple, lambda expr, scope: tuple(self.value(field, scope) for field in expr.fields)),
            (ir.TupleGetItem, lambda expr, scope: self.value(expr.tuple_value, scope)[expr.index]),
            (relax.SeqExpr, self._sequence),
            (relax.Function, lambda expr, scope: (expr, scope)),
            (relax.If, self._branch),
        )

    def call(self, func: relax.Function, args: Sequence[Value], outer: dict[Any, Value]) -> Value:
        """The value of the body of ``func`` with its parameters bound; ``outer`` is the scope of its definition."""
        if len(args) != len(func.params):
            raise Unsupported(f"the function takes {len(func.params)} inputs, {len(args)} were given")
        scope = dict(outer)
        for param, arg in zip(func.params, args, strict=True):
            _bind(param, arg, scope)
        return self.value(func.body, scope)

    def value(self, expr: Any, scope: dict[Any, Value]) -> Value:
        if not isinstance(expr, ir.Var) and is_literal(expr):
            return literal(expr, scope)
        for kind, handler in self._kinds:
            if isinstance(expr, kind):
                return handler(expr, scope)
        return literal(expr, scope)

    def _variable(self, var: ir.Var, scope: dict[Any, Value]) -> Value:
        if var not in scope:
            raise Unsupported(f"{var.name} has no value here")
        return scope[var]

    def _sequence(self, expr: Any, scope: dict[Any, Value]) -> Value:
        for block in expr.blocks:
            for binding in block.bindings:
                _bind(binding.var, self.value(binding.value, scope), scope)
        return self.value(expr.body, scope)

    def _branch(self, expr: Any, scope: dict[Any, Value]) -> Value:
        taken = expr.true_branch if self.value(expr.cond, scope) else expr.false_branch
        return self.value(taken, dict(scope))

    def _call(self, call: Call, scope: dict[Any, Value]) -> Value:
        if isinstance(call.op, ir.Op):
            named = (ir.GlobalVar, relax.ExternFunc)
            args = [None if isinstance(arg, named) else self.value(arg, scope) for arg in call.args]
            return evaluate(call, args, self._mod, scope, self._rounds)
        func, outer = self._callee(call.op, scope)
        return self.call(func, [self.value(arg, scope) for arg in call.args], outer)

    def _callee(self, op: Any, scope: dict[Any, Value]) -> tuple[relax.Function, dict[Any, Value]]:
        """The function that is called, and the scope of its definition."""
        if isinstance(op, ir.GlobalVar) and self._mod is not None:
            func = self._mod[op]
            if isinstance(func, relax.Function):
                return func, {}
        if isinstance(op, ir.Var) and op in scope:
            return scope[op]
        if isinstance(op, relax.Function):
            return op, scope
        raise Unsupported(f"a call of {op} has no numpy reference")


def _bind(var: ir.Var, value: Value, scope: dict[Any, Value]) -> None:
    """Bind a variable to its value, and the symbolic sizes in its type to the sizes of the value."""
    scope[var] = value
    dimensions = getattr(getattr(var.ty, "shape", var.ty), "values", None)
    shape = np.shape(value) if isinstance(value, np.ndarray) else value
    if dimensions is None or not isinstance(shape, tuple):
        return
    for dimension, size in zip(dimensions, shape, strict=False):
        if isinstance(dimension, ir.Var):
            scope.setdefault(dimension, size)
