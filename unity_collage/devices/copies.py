"""Fewer copies: one for each value and destination, none there and back, and none of a value that can be computed
there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tvm import relax
from tvm.ir import IRModule
from tvm.relax import op as relax_op

from ..annotations import FREELY_PLACED
from ..graph.calls import op_name
from ..graph.dataflow import used_vars
from ..graph.in_place import IN_PLACE, changed_params
from ..plan.placed import TARGET
from .element_wise import ELEMENT_WISE, at_most
from .partition import renamed_value
from .reading import COPY
from .table import DeviceTable
from .trees import on

op: Any = relax_op


def merged(mod: IRModule) -> IRModule:
    """``mod`` with redundant copies removed in every function that changes no memory in place."""
    table = DeviceTable(mod)
    functions = {
        gvar: _Merger(table, func).function()
        if isinstance(func, relax.Function) and why_left_alone(func, mod) is None
        else func
        for gvar, func in mod.functions_items()
    }
    infos = {name: list(found) for name, found in mod.global_infos.items()}
    return relax.transform.Normalize()(IRModule(functions, attrs=mod.attrs, global_infos=infos))


def why_left_alone(func: relax.Function, mod: IRModule | None = None) -> str | None:
    """Why copies of a function stay: a copy keeps an old value where its source is changed afterwards.

    ``mod`` is where the functions that ``func`` calls are looked up.
    """
    if not func.is_pure:
        return "it may change memory"
    found: list[relax.Expr] = []
    relax.analysis.post_order_visit(func.body, found.append)
    if any(isinstance(expr, relax.Function) for expr in found):
        return "a function inside it may read any value"
    changed = next((op_name(expr) for expr in found if op_name(expr) in IN_PLACE), None)
    if changed is not None:
        return f"{changed} changes memory"
    called = next(iter(changed_params(func, mod)), None)
    return None if called is None else f"{called}, which it calls, changes memory"


class _Merger:
    """One walk over a function, with the copies that are visible at each place."""

    def __init__(self, table: DeviceTable, func: relax.Function) -> None:
        self._table, self._func = table, func
        groups = FREELY_PLACED.read(func) if FREELY_PLACED.on(func) else ()
        self._free = {name for group in groups if TARGET in group.free for name in group.values}
        self._renamed: dict[relax.Var, relax.Expr] = {}
        self._roots: dict[relax.Var, relax.Var] = {}
        """The variable that a variable is a copy of."""
        self._copies: dict[tuple[relax.Var, int], relax.Var] = {}
        """The variable that holds a value on a device, by its position."""

    def function(self) -> relax.Function:
        func = self._func
        body = self._sequence(func.body)
        return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)

    def _sequence(self, body: relax.Expr) -> relax.SeqExpr:
        assert isinstance(body, relax.SeqExpr)
        blocks = [self._block(block) for block in body.blocks]
        return relax.SeqExpr(blocks, renamed_value(body.body, self._renamed))

    def _block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        bindings = list(block.bindings)
        uses = Counter(var for binding in bindings for var in used_vars(binding.value))
        inner = [binding for binding in bindings if isinstance(binding.var, relax.DataflowVar)]
        once: dict[relax.Var, relax.Expr] = {b.var: b.value for b in inner if uses[b.var] == 1}
        wanted = Counter(
            (source, self._on(copy.var))
            for copy in bindings
            if isinstance(copy.value, relax.Call) and op_name(copy.value) == COPY
            for source in self._sources(copy.value.args[0], copy, once)
        )
        made: list[relax.Binding] = []
        for binding in bindings:
            if op_name(binding.value) == COPY:
                made += self._copy(binding, once, wanted)
            elif isinstance(binding.value, relax.If):
                made.append(self._branches(binding))
            elif not isinstance(binding, relax.MatchCast):
                value = renamed_value(binding.value, self._renamed)
                made.append(relax.VarBinding(binding.var, value, binding.span))
            else:
                made.append(
                    relax.MatchCast(binding.var, renamed_value(binding.value, self._renamed), binding.ty)
                )
        hidden = {binding.var for binding in made if isinstance(binding.var, relax.DataflowVar)}
        self._copies = {
            key: var for key, var in self._copies.items() if var not in hidden and key[0] not in hidden
        }
        self._roots = {var: root for var, root in self._roots.items() if root not in hidden}
        dataflow = isinstance(block, relax.DataflowBlock)
        return relax.DataflowBlock(list(_live(made))) if dataflow else relax.BindingBlock(made)

    def _branches(self, binding: relax.Binding) -> relax.Binding:
        value: Any = binding.value
        copies, roots = dict(self._copies), dict(self._roots)
        branches: list[relax.SeqExpr] = []
        for branch in (value.true_branch, value.false_branch):
            branches.append(self._sequence(branch))
            self._copies, self._roots = dict(copies), dict(roots)
        condition = renamed_value(value.cond, self._renamed)
        return relax.VarBinding(binding.var, relax.If(condition, branches[0], branches[1]))

    def _copy(
        self, binding: relax.Binding, once: dict[relax.Var, relax.Expr], wanted: Counter[Any]
    ) -> Iterator[relax.Binding]:
        """The bindings in place of a copy: none if another variable has the value there."""
        var, call = binding.var, binding.value
        assert isinstance(call, relax.Call)
        source, place = renamed_value(call.args[0], self._renamed), self._on(var)
        if not isinstance(source, relax.Var):
            yield binding
            return
        old = call.args[0]
        known = self._there(source, place)
        if known is None and isinstance(old, relax.Var) and self._is_moved(old, binding, once, wanted):
            known = yield from self._computed(old, place, once)
        if known is None:
            yield relax.VarBinding(var, self._to(self._nearest(source, place), place))
            self._know(source, place, var)
        elif isinstance(var, relax.DataflowVar) or not isinstance(known, relax.DataflowVar):
            self._renamed[var] = known
        else:
            yield relax.VarBinding(var, known)

    def _is_moved(
        self,
        var: relax.Var,
        copy: relax.Binding,
        once: dict[relax.Var, relax.Expr],
        wanted: Counter[Any],
    ) -> bool:
        """Whether computing ``var`` at the destination makes copies fewer, and none larger."""
        place = self._on(copy.var)
        missing = self._sources(var, copy, once)
        if missing == (var,):
            return False
        if not missing:
            return True
        return len(missing) == 1 and wanted[missing[0], place] > 1 and at_most(missing[0].ty, copy.var.ty)

    def _sources(
        self, var: relax.Expr, copy: relax.Binding, once: dict[relax.Var, relax.Expr]
    ) -> tuple[relax.Var, ...]:
        """The variables to copy so that ``var`` can be computed at the destination of ``copy``; itself if it stays."""
        if not isinstance(var, relax.Var):
            return ()
        place = self._on(copy.var)
        if self._there(self._new(var), place) is not None:
            return ()
        value = once.get(var)
        if value is None or op_name(value) not in ELEMENT_WISE or var.name not in self._free:
            return (var,)
        operands = [operand for operand in dict.fromkeys(used_vars(value)) if _is_tensor(operand)]
        found = [source for operand in operands for source in self._sources(operand, copy, once)]
        return tuple(dict.fromkeys(found))

    def _computed(
        self, var: relax.Var, place: int, once: dict[relax.Var, relax.Expr]
    ) -> Iterator[relax.Binding]:
        """Bindings that compute ``var`` on another device; returns the variable that has it there."""
        known = self._there(self._new(var), place)
        if known is not None:
            return known
        value = once.get(var)
        moved = value is not None and op_name(value) in ELEMENT_WISE and var.name in self._free
        ty: Any = var.ty
        made = relax.DataflowVar(f"{var.name}_there", on(ty, self._table.devices[place]))
        if not moved:
            source = self._new(var)
            yield relax.VarBinding(made, self._to(self._nearest(source, place), place))
            self._know(source, place, made)
            return made
        assert isinstance(value, relax.Call)
        operands: dict[relax.Var, relax.Expr] = {}
        for operand in dict.fromkeys(used_vars(value)):
            if _is_tensor(operand):
                operands[operand] = yield from self._computed(operand, place, once)
        new: Any = renamed_value(value, operands)
        yield relax.VarBinding(made, relax.Call(new.op, new.args, new.attrs, new.ty_args, ret_ty=made.ty))
        return made

    def _new(self, var: relax.Var) -> relax.Var:
        new = self._renamed.get(var, var)
        assert isinstance(new, relax.Var)
        return new

    def _know(self, source: relax.Var, place: int, var: relax.Var) -> None:
        root = self._roots.get(source, source)
        self._roots[var] = root
        self._copies[root, place] = var

    def _there(self, source: relax.Var, place: int) -> relax.Var | None:
        """The variable that has the value of ``source`` at ``place``, if any has."""
        root = self._roots.get(source, source)
        if self._on(source) == place:
            return source
        return root if self._on(root) == place else self._copies.get((root, place))

    def _nearest(self, source: relax.Var, place: int) -> relax.Var:
        """``source``, or another copy of its value in the memory of the destination, whose copy moves nothing."""
        root = self._roots.get(source, source)
        others = [source, root, *(var for (of, _), var in self._copies.items() if of is root or of == root)]
        shared = (var for var in others if self._table.share_memory(self._on(var), place))
        return next(shared, source)

    def _on(self, var: relax.Var) -> int:
        ty: Any = var.ty
        index = None if ty.vdevice is None else self._table.index(ty.vdevice)
        return -1 if index is None else index

    def _to(self, source: relax.Var, place: int) -> relax.Call:
        device = self._table.devices[place]
        call, ty = op.to_vdevice(source, device), source.ty
        assert isinstance(ty, relax.TensorType)
        return relax.Call(call.op, call.args, call.attrs, ret_ty=on(ty, device))


def _live(bindings: Sequence[relax.Binding]) -> Sequence[relax.Binding]:
    """The bindings that are read or visible outside; moving a computation leaves its old bindings unused."""
    needed: set[relax.Var] = set()
    kept: list[relax.Binding] = []
    for binding in reversed(bindings):
        plain = isinstance(binding, relax.VarBinding) and isinstance(binding.var, relax.DataflowVar)
        gone = op_name(binding.value) == COPY or op_name(binding.value) in ELEMENT_WISE
        if plain and gone and binding.var not in needed:
            continue
        needed.update(used_vars(binding.value))
        kept.append(binding)
    return kept[::-1]


def _is_tensor(var: relax.Var) -> bool:
    return isinstance(var.ty, relax.TensorType)
