"""A function with its inner functions inlined: the calls to lower, in order, and the values that they read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tvm import relax
from tvm.relax.utils import copy_with_new_vars


@dataclass(frozen=True, slots=True)
class FlatBinding:
    """One operator and the variable of its result."""

    var: relax.Var
    call: relax.Call
    region: int
    """The number of the inner function that contains the operator; 0 is the outer function."""
    label: str = ""
    """The ``Composite`` label of the innermost function with one that contains the operator."""


@dataclass(slots=True)
class Flat:
    """A function as one list of operators."""

    params: list[relax.Var]
    bindings: list[FlatBinding] = field(default_factory=list)
    results: list[relax.Expr] = field(default_factory=list)
    alias: dict[relax.Var, relax.Expr] = field(default_factory=dict)
    """Variables that are other names of a value."""
    fields: dict[relax.Var, tuple[relax.Var, int]] = field(default_factory=dict)
    """Variables that hold a field of a call's tuple, with the variable of that call and the index."""

    def resolve(self, expr: relax.Expr) -> relax.Expr:
        """The variable or constant that ``expr`` is another name of."""
        while isinstance(expr, relax.Var) and expr in self.alias:
            expr = self.alias[expr]
        return expr

    def resolved(self, call: relax.Call) -> relax.Call:
        """The call with its operands resolved, including the fields of tuples."""
        args = [self._resolved_operand(arg) for arg in call.args]
        return relax.Call(call.op, args, call.attrs, call.ty_args, ret_ty=call.ty)

    def _resolved_operand(self, arg: relax.Expr) -> relax.Expr:
        arg = self.resolve(arg)
        return relax.Tuple([self.resolve(f) for f in arg.fields]) if isinstance(arg, relax.Tuple) else arg

    def reads(self) -> Counter[relax.Expr]:
        """How often each value is read, by an operator or as a result."""
        counts: Counter[relax.Expr] = Counter()
        for binding in self.bindings:
            for arg in binding.call.args:
                counts.update(self.leaves(arg))
        for result in self.results:
            counts.update(self.leaves(result))
        return counts

    def leaves(self, expr: relax.Expr) -> Iterator[relax.Expr]:
        """The variables and constants in an operand, resolved."""
        expr = self.resolve(expr)
        if isinstance(expr, relax.Tuple):
            for part in expr.fields:
                yield from self.leaves(part)
        elif isinstance(expr, relax.Expr):
            yield expr


class NotFlat(Exception):
    """A function is not a list of operators; the message says what it contains."""


def flatten(func: relax.Function) -> Flat:
    """The operators of ``func``; raises NotFlat for control flow and for calls of functions from outside."""
    flat = Flat(list(func.params))
    regions = _Regions(flat)
    flat.results = regions.inline_body(func, 0, _label(func))
    return flat


@dataclass(slots=True)
class _Regions:
    flat: Flat
    count: int = 0
    local: dict[relax.Expr, relax.Function] = field(default_factory=dict)
    inlined: dict[relax.Expr, None] = field(default_factory=dict)

    def inline_body(self, func: relax.Function, region: int, label: str) -> list[relax.Expr]:
        """Append the bindings of a function body; returns its results, one expression for each field."""
        if not isinstance(func.body, relax.SeqExpr):
            return [func.body]
        for block in func.body.blocks:
            for binding in block.bindings:
                if not isinstance(binding, relax.VarBinding):
                    raise NotFlat("it contains a match_cast, which native programs do not have")
                self._bind(binding.var, binding.value, region, label)
        result = self.flat.resolve(func.body.body)
        return list(result.fields) if isinstance(result, relax.Tuple) else [result]

    def _bind(self, var: relax.Var, value: relax.Expr, region: int, label: str) -> None:
        flat = self.flat
        if isinstance(value, relax.Function):
            self.local[var] = value
        elif isinstance(value, relax.Call) and isinstance(value.op, relax.Var) and value.op in self.local:
            self._inline(var, value, label)
        elif isinstance(value, relax.Call):
            flat.bindings.append(FlatBinding(var, value, region, label))
        elif isinstance(value, relax.TupleGetItem):
            self._field(var, value)
        elif isinstance(value, relax.If):
            raise NotFlat("it contains an if, which native programs do not have")
        else:
            flat.alias[var] = value

    def _inline(self, var: relax.Var, call: relax.Call, label: str) -> None:
        # A second call of the same function must not bind its variables again.
        inner = copy_with_new_vars(self.local[call.op]) if call.op in self.inlined else self.local[call.op]
        self.inlined[call.op] = None
        for param, arg in zip(inner.params, call.args, strict=True):
            self.flat.alias[param] = arg
        self.count += 1
        results = self.inline_body(inner, self.count, _label(inner) or label)
        self.flat.alias[var] = results[0] if len(results) == 1 else relax.Tuple(results)

    def _field(self, var: relax.Var, value: relax.TupleGetItem) -> None:
        holder = self.flat.resolve(value.tuple_value)
        if isinstance(holder, relax.Tuple):
            self.flat.alias[var] = holder.fields[value.index]
        elif isinstance(holder, relax.Var):
            self.flat.fields[var] = (holder, value.index)
        else:
            raise NotFlat("it reads a field of an expression that is not a variable")


def _label(func: relax.Function) -> str:
    return str((func.attrs or {}).get("Composite", ""))
