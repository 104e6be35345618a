"""Put hints on calls that match patterns or predicates, for PlanDevices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tvm import relax, runtime
from tvm.ir import IRModule
from tvm.relax import op as relax_op
from tvm.relax.dpl import CallPattern, DFPattern, TupleGetItemPattern, TuplePattern

from ..errors import CollageError
from ..graph.calls import op_name
from ..graph.dataflow import used_vars
from .partition import is_closed, renamed_value
from .reading import COPY, HINT
from .table import DevicePlace, DeviceTable, Named
from .trees import tensors

op: Any = relax_op

Selector: TypeAlias = "DFPattern | Callable[[relax.Call], bool]"
"""A pattern of TVM for one or several calls, or a predicate of one call."""


def placed(mod: IRModule, rules: Sequence[tuple[Selector, Named]], others: Named | None) -> IRModule:
    """``mod`` with hints on the operands of the calls that ``rules`` select; the first rule that selects a call
    counts.
    """
    table = DeviceTable(mod)
    selectors = [selector for selector, _ in rules]
    places = [table.whole(device) for _, device in rules]
    for place, (_, device) in zip(places, rules, strict=True):
        reason = _why_not_hinted(table, place, device)
        if reason is not None:
            raise CollageError(reason)
    rest = None if others is None else table.whole(others)
    functions = {
        gvar: _Placer(table, selectors, places, rest, func).function()
        if isinstance(func, relax.Function) and not is_closed(func)
        else func
        for gvar, func in mod.functions_items()
    }
    made = IRModule(functions, attrs=mod.attrs, global_infos=table.global_infos(mod))
    return relax.transform.Normalize()(made)


@dataclass(slots=True)
class _Placer:
    table: DeviceTable
    selectors: Sequence[Selector]
    places: Sequence[DevicePlace]
    others: DevicePlace | None
    func: relax.Function
    chosen: dict[relax.Var, DevicePlace] = field(default_factory=dict)
    """The place of a selected binding."""

    def function(self) -> relax.Function:
        func = self.func
        values = dict(relax.analysis.get_var2val(func).items())
        for selector, place in zip(self.selectors, self.places, strict=True):
            for inside in _selected(selector, values):
                if not any(var in self.chosen for var in inside):
                    self.chosen.update(dict.fromkeys(inside, place))
        body = self._sequence(func.body)
        return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)

    def _sequence(self, body: relax.Expr) -> relax.SeqExpr:
        assert isinstance(body, relax.SeqExpr)
        blocks: list[relax.BindingBlock] = []
        for block in body.blocks:
            inner = isinstance(block, relax.DataflowBlock)
            hints: dict[tuple[relax.Var, DevicePlace], relax.Var] = {}
            made = [new for binding in block.bindings for new in self._binding(binding, inner, hints)]
            blocks.append(relax.DataflowBlock(made) if inner else relax.BindingBlock(made))
        return relax.SeqExpr(blocks, body.body)

    def _binding(
        self, binding: relax.Binding, inner: bool, hints: dict[tuple[relax.Var, DevicePlace], relax.Var]
    ) -> Iterator[relax.Binding]:
        var, value = binding.var, binding.value
        if isinstance(value, relax.If):
            branches = [self._sequence(branch) for branch in (value.true_branch, value.false_branch)]
            yield relax.VarBinding(var, relax.If(value.cond, branches[0], branches[1]))
            return
        place = self.chosen.get(var)
        if (place is None and self.others is None) or op_name(value) in (HINT, COPY):
            yield binding
            return
        renamed: dict[relax.Var, relax.Expr] = {}
        for operand in dict.fromkeys(used_vars(value)):
            where = place if place is not None else self.others
            if where is None or not self._crosses(operand, place):
                continue
            if (operand, where) not in hints:
                kind = relax.DataflowVar if inner else relax.Var
                hint = self._hint(operand, where)
                hints[operand, where] = kind(f"{operand.name}_placed", operand.ty)
                yield relax.VarBinding(hints[operand, where], hint)
            renamed[operand] = hints[operand, where]
        yield from self._renamed(binding, renamed, place, inner)

    def _renamed(
        self,
        binding: relax.Binding,
        renamed: Mapping[relax.Var, relax.Expr],
        place: DevicePlace | None,
        inner: bool,
    ) -> Iterator[relax.Binding]:
        var, value = binding.var, renamed_value(binding.value, renamed)
        read = [each for operand in used_vars(value) for each in tensors(operand.ty)]
        if isinstance(binding, relax.MatchCast):
            yield relax.MatchCast(var, value, binding.ty, binding.span)
        elif place is None or read or not isinstance(var.ty, relax.TensorType):
            yield relax.VarBinding(var, value, binding.span)
        else:  # without operands a hint can only stand on the result
            made = (relax.DataflowVar if inner else relax.Var)(f"{var.name}_made", var.ty)
            yield relax.VarBinding(made, value, binding.span)
            yield relax.VarBinding(var, self._hint(made, place))

    def _crosses(self, operand: relax.Var, place: DevicePlace | None) -> bool:
        """Whether a hint is put between an operand and its reader; none is if the reader is not selected."""
        if not isinstance(operand.ty, relax.TensorType):
            return False
        before = self.chosen.get(operand)
        return before != place if place is not None else before is not None

    def _hint(self, value: relax.Var, place: DevicePlace) -> relax.Expr:
        assert place.kind is not None and place.device_id is not None, "the place is complete"
        return op.hint_on_device(value, runtime.Device(place.kind, place.device_id), place.scope)


def _why_not_hinted(table: DeviceTable, place: DevicePlace, device: Named) -> str | None:
    """Why a hint, which names only a kind and an id, cannot express ``place``, or None if it can."""
    said = table.completed(DevicePlace(place.kind, None, place.device_id), table.first)
    if said is None or str(said.target) == str(place.target):
        return None
    return (
        f"a hint cannot tell {device} from {said.target}, which has the same kind and id {place.device_id}: "
        "give one of the two another id, or put R.to_vdevice where it is meant"
    )


def _selected(selector: Selector, values: Mapping[relax.Var, relax.Expr]) -> Iterator[tuple[relax.Var, ...]]:
    """The bindings of each match, the last ones of the function first."""
    names = {value: var for var, value in values.items()}
    for var, value in reversed(list(values.items())):
        if not isinstance(value, relax.Call) or op_name(value) in (HINT, COPY):
            continue
        if not isinstance(selector, DFPattern):
            if selector(value):
                yield (var,)
            continue
        found: Any = selector.extract_matched_expr(value, values)
        if found is not None:
            kinds = (CallPattern, TupleGetItemPattern, TuplePattern)
            inside = [expr for pattern, expr in found.items() if isinstance(pattern, kinds)]
            bound = [expr if isinstance(expr, relax.Var) else names.get(expr) for expr in inside]
            yield tuple(each for each in bound if each is not None and each in values)
