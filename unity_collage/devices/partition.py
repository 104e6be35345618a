"""Turn regions of one device into private functions, in every dataflow block of a module, branches included."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import ir, relax
from tvm.ir import IRModule

from ..annotations import DEVICE, FREELY_PLACED
from ..errors import MissingAnnotation
from ..graph.calls import op_name
from ..graph.dataflow import used_vars
from ..graph.in_place import ChangedParams, changed_params, changed_readers
from .reading import HINT
from .regions import DeviceRegion, regions
from .table import DeviceTable
from .trees import tensors

PROJECTIONS = ("vdevice", "device", "target")
"""What the bindings of a region have in common: the whole VDevice, its target and id, or its target alone."""

_CLOSED = ("Codegen", "Composite", "Primitive", DEVICE, "target")
"""Attributes of functions that are on one device already, or that a backend makes a kernel of."""


def partitioned(mod: IRModule, projection: str, only: Collection[str] | None = None) -> IRModule:
    """``mod`` with a private function for each region of one device; raises MissingAnnotation without a plan.

    ``only``: the labels of the devices whose regions become functions; None: all.
    """
    work = _Partition(mod, projection, only)
    for gvar, func in mod.functions_items():
        if isinstance(func, relax.Function) and not is_closed(func):
            work.functions[gvar] = work.function(gvar.name_hint, func)
    infos = {name: list(found) for name, found in mod.global_infos.items()}
    made = IRModule(work.functions, attrs=mod.attrs, global_infos=infos)
    return relax.transform.Normalize()(made)


def is_closed(func: relax.Function) -> bool:
    """Whether a function is on one device by an attribute, or is a kernel of a backend."""
    return any(name in (func.attrs or {}) for name in _CLOSED)


@dataclass(slots=True)
class _Partition:
    mod: IRModule
    projection: str
    only: Collection[str] | None
    functions: dict[ir.GlobalVar, ir.BaseFunc] = field(init=False)
    _table: DeviceTable = field(init=False)
    _builder: relax.BlockBuilder = field(init=False)
    _func: relax.Function = field(init=False)
    _called: ChangedParams = field(init=False)
    _name: str = ""

    def __post_init__(self) -> None:
        self.functions = dict(self.mod.functions_items())
        self._table = DeviceTable(self.mod)
        self._builder = relax.BlockBuilder(self.mod)

    def function(self, name: str, func: relax.Function) -> relax.Function:
        self._func, self._name, self._called = func, name, changed_params(func, self.mod)
        body = self._sequence(func.body)
        new = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)
        return _with_own_record(new)

    def _sequence(self, body: relax.Expr) -> relax.SeqExpr:
        assert isinstance(body, relax.SeqExpr)
        return relax.SeqExpr([self._block(block) for block in body.blocks], body.body)

    def _block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        if isinstance(block, relax.DataflowBlock):
            return relax.DataflowBlock(list(self._calls(block.bindings)))
        return relax.BindingBlock([self._branches(binding) for binding in block.bindings])

    def _branches(self, binding: relax.Binding) -> relax.Binding:
        value = binding.value
        if not isinstance(value, relax.If):
            return binding
        branches = [self._sequence(branch) for branch in (value.true_branch, value.false_branch)]
        made = relax.If(value.cond, branches[0], branches[1])
        return relax.VarBinding(binding.var, self._builder.normalize(made))

    def _calls(self, bindings: Sequence[relax.Binding]) -> Iterator[relax.Binding]:
        """The bindings of a block with a call in place of each region."""
        index = {binding.var: i for i, binding in enumerate(bindings)}
        waits = changed_readers(self._func, bindings, used_vars, self._called)
        reads = [
            [index[var] for var in (*used_vars(b.value), *waits.get(b.var, ())) if var in index]
            for b in bindings
        ]
        used = _used_outside(self._func, bindings)
        for region in regions([self._key(binding) for binding in bindings], reads):
            inside = [bindings[i] for i in region.inside]
            if region.key is None or all(_is_glue(binding.value) for binding in inside):
                yield from inside
            else:
                readers = [i for i in range(len(bindings)) if i not in region.inside]
                read = {var for i in readers for var in used_vars(bindings[i].value)} | used
                yield from self._outlined(region, inside, [b.var for b in inside if b.var in read])

    def _key(self, binding: relax.Binding) -> Hashable | None:
        """What the values of a binding have in common with others of their region, or None for none."""
        value = binding.value
        if not isinstance(binding, relax.VarBinding) or op_name(value) == HINT:
            return None
        if isinstance(value, relax.Call) and isinstance(value.op, ir.GlobalVar):
            callee = self.mod.functions.get(value.op)
            if isinstance(callee, relax.Function) and is_closed(callee):
                return None
        if isinstance(value, relax.Call) and isinstance(value.op, relax.Var):
            return None  # a function that is a value stays where it is
        results = list(tensors(binding.var.ty))
        if not results or not isinstance(value, (relax.Call, relax.Tuple, relax.TupleGetItem, relax.Var)):
            return None
        keys = {self._projected(result.vdevice, binding.var) for result in results}
        operands = [tensor.vdevice for var in used_vars(value) for tensor in tensors(var.ty)]
        keys |= {self._projected(device, binding.var) for device in operands}
        return next(iter(keys)) if len(keys) == 1 and self._is_asked(results[0].vdevice) else None

    def _is_asked(self, device: relax.VDevice | None) -> bool:
        """Whether regions of a device become functions."""
        return self.only is None or (device is not None and self._table.label_of_device(device) in self.only)

    def _projected(self, device: relax.VDevice | None, var: relax.Var) -> Hashable:
        if device is None:
            raise MissingAnnotation(f"`{var.name}` in {self._name} has no VDevice: run PlanDevices first")
        target, number, scope = str(device.target), int(device.vdevice_id), str(device.memory_scope)
        return {"target": target, "device": (target, number)}.get(self.projection, (target, number, scope))

    def _outlined(
        self, region: DeviceRegion, inside: Sequence[relax.Binding], exits: Sequence[relax.Var]
    ) -> Iterator[relax.Binding]:
        func, args = _outlined_function(inside, exits)
        device = next(tensors(exits[0].ty)).vdevice
        assert device is not None
        func = func.with_attr("target", device.target)
        if self.projection != "target":
            func = func.with_attr(DEVICE, self._table.label_of_device(device))
        # The builder finds a name that is free, and gives equal functions one.
        gvar = self._builder.add_func(func, f"{self._name}_{self._table.identifier(device)}_part")
        self.functions[gvar] = self._builder.get()[gvar]
        ty = exits[0].ty if len(exits) == 1 else relax.TupleType([var.ty for var in exits])
        call = relax.Call(gvar, args, ret_ty=ty)
        if len(exits) == 1:
            yield relax.VarBinding(exits[0], call)
            return
        result = relax.DataflowVar(gvar.name_hint, ty)
        yield relax.VarBinding(result, call)
        for position, var in enumerate(exits):
            yield relax.VarBinding(var, relax.TupleGetItem(result, position))


def _outlined_function(
    inside: Sequence[relax.Binding], exits: Sequence[relax.Var]
) -> tuple[relax.Function, list[relax.Expr]]:
    """A function of some bindings, and its arguments: the values that they read, and sizes that no argument's shape
    contains.
    """
    own = {binding.var for binding in inside}
    reads = dict.fromkeys(var for b in inside for var in used_vars(b.value) if var not in own)
    new = {var: relax.Var(var.name, var.ty) for var in reads}
    renamed: dict[relax.Var, relax.Expr] = {**new}
    bindings: list[relax.Binding] = []
    for binding in inside:
        var = binding.var
        kind = relax.Var if var in exits else relax.DataflowVar
        made = kind(var.name, var.ty)
        bindings.append(relax.VarBinding(made, renamed_value(binding.value, renamed)))
        renamed[var] = made
    results = [renamed[var] for var in exits]
    result = results[0] if len(results) == 1 else relax.Tuple(results)
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], result)
    params, args = list(new.values()), list[relax.Expr](new)
    sizes = list(relax.analysis.free_symbolic_vars(relax.Function(params, body, result.ty)))
    if sizes:
        params.append(relax.Var("sizes", relax.ShapeType(sizes)))
        args.append(relax.ShapeExpr(sizes))
    func = relax.utils.copy_with_new_vars(relax.Function(params, body, result.ty))
    return func, args


def renamed_value(expr: relax.Expr, renamed: Mapping[relax.Var, relax.Expr]) -> relax.Expr:
    """``expr`` with other variables, its type kept; it must not bind variables itself."""
    if isinstance(expr, relax.Var):
        return renamed.get(expr, expr)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([renamed_value(item, renamed) for item in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(renamed_value(expr.tuple_value, renamed), expr.index)
    if isinstance(expr, relax.Call):
        callee: Any = renamed_value(expr.op, renamed)
        args = [renamed_value(arg, renamed) for arg in expr.args]
        return relax.Call(callee, args, expr.attrs, expr.ty_args, expr.span, ret_ty=expr.ty)
    return expr


def _used_outside(func: relax.Function, bindings: Sequence[relax.Binding]) -> set[relax.Var]:
    """The variables of a block that the function reads after it: all that are visible there."""
    return {binding.var for binding in bindings if not isinstance(binding.var, relax.DataflowVar)}


def _is_glue(value: relax.Expr) -> bool:
    return not isinstance(value, relax.Call) or op_name(value) == "relax.to_vdevice"


def _with_own_record(func: relax.Function) -> relax.Function:
    """``func`` without the names of values that have moved into other functions."""
    if not FREELY_PLACED.on(func):
        return func
    names = {param.name for param in func.params} | set(_bound(func.body))
    kept = [
        replace(group, values=tuple(v for v in group.values if v.split(".")[0] in names or " " in v))
        for group in FREELY_PLACED.read(func)
    ]
    return FREELY_PLACED.write(func, tuple(group for group in kept if group.values))


def _bound(body: relax.Expr) -> Iterator[str]:
    if isinstance(body, relax.SeqExpr):
        for block in body.blocks:
            for binding in block.bindings:
                yield binding.var.name
                if isinstance(binding.value, relax.If):
                    yield from _bound(binding.value.true_branch)
                    yield from _bound(binding.value.false_branch)
