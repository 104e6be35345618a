"""Which results of a program may have the memory of an input, a constant or another result.

A caller may write to results. So a result is copied if something else reads its memory.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, s_tir, tirx
from tvm.ir import IRModule

from ..graph.in_place import IN_PLACE, VIEWS
from ..graph.shapes import shape_of
from ..graph.variants import called_by_switch

_WITH_DESTINATION = frozenset({"relax.call_tir", "relax.call_dps_packed", "relax.call_tir_with_grad"})
"""Calls of kernels that write to new memory, except that TVM makes views of kernels that only reshape."""

_MAY_SHARE = frozenset(
    {
        *VIEWS,
        *IN_PLACE,
        "relax.permute_dims",
        "relax.broadcast_to",
        "relax.astype",
        "relax.to_vdevice",
        "relax.hint_on_device",
    }
)
"""Operators with a result that may be in the memory of an operand."""

_UNKNOWN = frozenset({"relax.call_pure_packed", "relax.call_py_func", "relax.call_builtin_with_ctx"})
"""Calls of unknown functions: a result may be in the memory of a tensor, or of an object such as a cache."""

_CLOSURES = frozenset({"relax.invoke_closure", "relax.invoke_pure_closure"})
"""Calls of functions that may return any value of the function around them."""

_ANYTHING = "anything"
"""The origin of memory that may belong to others: parameters, constants, results of Relax functions."""

Origins = frozenset[Any]


def shared_results(mod: IRModule) -> tuple[int, ...]:
    """The numbers of results of ``main`` that may share the memory of an input, a constant or an earlier result."""
    return _shared_in(mod, mod["main"])


def _shared_in(mod: IRModule, func: relax.Function) -> tuple[int, ...]:
    """:func:`shared_results` of ``main`` or of one of its variants."""
    body = func.body
    found = _Origins(mod)
    found.read(body)
    value = found.value(body)
    is_tuple = isinstance(value.ty, relax.TupleType)
    shared, seen = [], set[Any]()
    for number, origins in enumerate(found.of_fields(value) if is_tuple else [found.of(value)]):
        if _ANYTHING in origins or origins & seen:
            shared.append(number)
        seen |= origins
    return tuple(shared)


class _Origins:
    """The places where the memory of each variable was allocated: variables, or ``_ANYTHING``."""

    def __init__(self, mod: IRModule):
        self._mod = mod
        self._bound: dict[relax.Var, relax.Expr] = {}
        self._computed: set[relax.Var] = set()
        """Variables with values that follow from constants alone: TVM may make constants of them."""

    def read(self, body: relax.Expr) -> None:
        """Learn the bindings of a body and of the branches in it."""
        if not isinstance(body, relax.SeqExpr):
            return
        for binding in (binding for block in body.blocks for binding in block.bindings):
            self._bound[binding.var] = binding.value
            if self._is_constant(binding.value):
                self._computed.add(binding.var)
            if isinstance(binding.value, relax.If):
                self.read(binding.value.true_branch)
                self.read(binding.value.false_branch)

    def value(self, expr: relax.Expr) -> relax.Expr:
        """The expression that ``expr`` names, through variables that are only other names."""
        while True:
            if isinstance(expr, relax.SeqExpr):
                expr = expr.body
            elif isinstance(expr, relax.Var) and isinstance(self._bound.get(expr), (relax.Var, relax.Tuple)):
                expr = self._bound[expr]
            else:
                return expr

    def of(self, expr: relax.Expr) -> Origins:
        """The origins of an expression."""
        expr = self.value(expr)
        if isinstance(expr, relax.Tuple):
            return frozenset().union(*map(self.of, expr.fields))
        if isinstance(expr, relax.TupleGetItem):
            return self.of_fields(expr.tuple_value)[expr.index]
        if isinstance(expr, relax.Var) and expr in self._bound:
            return self._of_value(expr, self._bound[expr])
        return self._of_value(None, expr)

    def of_fields(self, expr: relax.Expr) -> list[Origins]:
        """The origins of each field of a tuple."""
        expr = self.value(expr)
        if isinstance(expr, relax.Tuple):
            return [self.of(field) for field in expr.fields]
        bound = self._bound.get(expr, expr) if isinstance(expr, relax.Var) else expr
        if isinstance(bound, relax.If):
            branches = map(self.of_fields, (bound.true_branch, bound.false_branch))
            return [one | other for one, other in zip(*branches, strict=True)]
        assert isinstance(expr.ty, relax.TupleType)
        of_operands = self.of(expr) - {expr}
        return [of_operands | {(expr, number)} for number in range(len(expr.ty.fields))]

    def _of_value(self, var: relax.Var | None, value: relax.Expr) -> Origins:
        if isinstance(value, relax.If):
            return self.of(value.true_branch) | self.of(value.false_branch)
        if isinstance(value, relax.TupleGetItem):
            return self.of(value)
        if isinstance(value, relax.Call) and self._has_own_results(value.op):
            return frozenset({value if var is None else var})
        if isinstance(value, tvm.ir.GenericConst) and 0 in (shape_of(value) or ()):
            return frozenset({value})  # nothing can be written to it
        if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op) or var in self._computed:
            return frozenset({_ANYTHING})
        name = value.op.name
        if name in _CLOSURES or (name in _UNKNOWN and any(map(_has_object, value.args))):
            return frozenset({_ANYTHING})
        if name in _MAY_SHARE | _UNKNOWN or (name in _WITH_DESTINATION and self._only_reshapes(value)):
            return frozenset().union(*map(self.of, _tensors(value)))
        return frozenset({value if var is None else var})

    def _is_constant(self, expr: relax.Expr) -> bool:
        """Whether a value with static shapes reads no tensors but constants, and values that are computed of them."""
        if isinstance(expr, relax.Var):
            return expr in self._computed
        if isinstance(expr, relax.Tuple):
            return all(map(self._is_constant, expr.fields))
        if isinstance(expr, relax.TupleGetItem):
            return self._is_constant(expr.tuple_value)
        if isinstance(expr, relax.Call):
            return _is_static(expr.ty) and all(map(self._is_constant, _tensors(expr)))
        return isinstance(expr, tvm.ir.GenericConst)

    def _has_own_results(self, callee: relax.Expr) -> bool:
        """Whether the call is of a variant with results in memory of their own."""
        variants = called_by_switch(self._mod["main"])
        if not isinstance(callee, tvm.ir.GlobalVar) or callee.name_hint not in variants:
            return False
        return not _shared_in(self._mod, self._mod[callee])

    def _only_reshapes(self, call: relax.Call) -> bool:
        kernel = call.args[0]
        if not isinstance(kernel, tvm.ir.GlobalVar):
            return False
        func = self._mod[kernel]
        # TVM's test takes kernels of blocks only, and our loops over sequences have none.
        has_blocks = isinstance(func, tirx.PrimFunc) and isinstance(func.body, s_tir.SBlockRealize)
        return has_blocks and bool(relax.analysis.has_reshape_pattern(func))


def _is_static(ty: tvm.ir.Type) -> bool:
    """Whether the extents of a tensor, or of all in a tuple, are known."""
    return all(map(_is_static, ty.fields)) if isinstance(ty, relax.TupleType) else shape_of(ty) is not None


def _has_object(arg: relax.Expr) -> bool:
    """Whether an argument is an object that may have memory of its own, or has one among its fields."""
    if isinstance(arg, relax.Tuple):
        return any(map(_has_object, arg.fields))
    return isinstance(arg, relax.Var) and isinstance(arg.ty, relax.ObjectType)


def _tensors(call: relax.Call) -> list[relax.Expr]:
    """The arguments that have memory, tuples among them as they are."""
    return [arg for arg in call.args if isinstance(arg.ty, (relax.TensorType, relax.TupleType))]
