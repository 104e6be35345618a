"""Write a choice of devices into a dataflow block: kernels where they were chosen, one copy a value and device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, relax

from ..graph.calls import op_name
from ..index_set import IndexSet, members
from ..plan.device_plan import DeviceCopy
from ..search.ends import ProblemWithEnds
from ..search.problem import Option, Solution
from .choice import FreeBlock
from .reading import COPY
from .trees import on

_op: Any = relax.op

Local = dict[relax.Var, relax.Expr]
"""Values that one kernel has computed, by their variables."""


class MovedBlock:
    """The bindings of ``block`` where ``chosen`` kernels run on their devices.

    An operator that several kernels compute, as a search may choose, is written for each of them.
    """

    def __init__(self, block: FreeBlock, devices: Mapping[str, relax.VDevice], taken: set[str]) -> None:
        """``devices`` by label; ``taken``: the names of the function's variables, which grow."""
        self._block, self._devices, self._taken = block, devices, taken
        self._numbers = {node.var: number for number, node in enumerate(block.nodes)}
        self._there: dict[tuple[relax.Var, str | None], relax.Expr] = {}
        self._origin: dict[int, str] = {}
        self._bound: set[relax.Var] = set()
        self.bindings: list[relax.Binding] = []
        self.copies: list[DeviceCopy] = []

    def dataflow(self, posed: ProblemWithEnds, solution: Solution) -> relax.DataflowBlock:
        """The block with each kernel of a solution on its device."""
        for option in solution.chosen:
            self._kernel(option, posed.inner.outputs(option))
        for number in members(self._block.seen):
            var = self._block.nodes[number].var
            value = self._at(var, self._block.place(number))
            if var not in self._bound:
                self._bind(var, value)
        return relax.DataflowBlock(self.bindings)

    def _kernel(self, option: Option, outputs: IndexSet) -> None:
        """Emit the operators of a kernel; others read the values that it writes."""
        local: Local = {}
        for number in members(option.inside):
            node = self._block.nodes[number]
            written = bool(outputs >> number & 1)
            if written:
                self._origin[number] = option.device
            local[node.var] = self._computed(number, option.device, local, written)
            if written:
                self._there[node.var, option.device] = local[node.var]

    def _computed(self, number: int, device: str | None, local: Local, keeps_name: bool) -> relax.Expr:
        """The variable of a node that is computed on ``device``; for a copy, its operand brought to ``device``."""
        node = self._block.nodes[number]
        value: Any = node.value
        ty = self._typed(node.var.ty, device)
        if op_name(value) == COPY:
            if not isinstance(value.args[0], ir.GenericConst):
                return self._read(value.args[0], device, local)
            assert device is not None, "a copy has a device"
            value = _op.to_vdevice(value.args[0], self._devices[device])
        if isinstance(value, relax.Call):
            args = [self._read(arg, device, local) for arg in value.args]
            types = [self._typed(each, device) for each in value.ty_args]
            value = relax.Call(value.op, args, value.attrs, types, value.span, ret_ty=ty)
        elif isinstance(value, relax.TupleGetItem):
            value = self._field(value, device, local)
        else:
            value = self._read(value, device, local)
        if isinstance(node.binding, relax.MatchCast):
            var = self._variable(number, device, ty, keeps_name)
            self._bound.add(var)
            self.bindings.append(relax.MatchCast(var, value, ty))
            return var
        if not isinstance(value, (relax.Call, relax.TupleGetItem, relax.ShapeExpr)):
            return value  # another name
        var = self._variable(number, device, ty, keeps_name)
        self._bind(var, value)
        return var

    def _field(self, item: relax.TupleGetItem, device: str | None, local: Local) -> relax.Expr:
        """A field on ``device``; of a tuple that is written elsewhere, this field alone is copied."""
        source: Any = item.tuple_value
        origin = None
        if isinstance(source, relax.Var) and source not in local:
            number = self._numbers.get(source)
            origin = self._block.freedom.home(source.ty) if number is None else self._origin.get(number)
        if origin not in (None, device) and (source, device) not in self._there:
            field = relax.TupleGetItem(self._at(source, origin), item.index)
            made = self._fresh(f"{source.name}_{item.index}", field.ty)
            self._bind(made, field)
            return self._copied(made, origin, device)
        read = self._read(source, device, local)
        return (
            read.fields[item.index] if isinstance(read, relax.Tuple) else relax.TupleGetItem(read, item.index)
        )

    def _read(self, expr: relax.Expr, device: str | None, local: Local) -> relax.Expr:
        """An operand on ``device``; a literal is everywhere."""
        if isinstance(expr, relax.Var):
            return local[expr] if expr in local else self._at(expr, device)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._read(field, device, local) for field in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return self._field(expr, device, local)
        return expr

    def _at(self, var: relax.Var, device: str | None) -> relax.Expr:
        """The value of a variable on ``device``, computed or copied there once."""
        known = self._there.get((var, device))
        if known is None:
            known = self._there[var, device] = self._brought(var, device)
        return known

    def _brought(self, var: relax.Var, device: str | None) -> relax.Expr:
        number = self._numbers.get(var)
        if number is not None and number not in self._origin:
            return self._computed(number, device, {}, True)
        home = self._block.freedom.home(var.ty) if number is None else self._origin[number]
        if number is None and (device is None or home in (device, None)):
            return var
        assert home is not None, "a kernel has a device"
        value = var if number is None else self._there[var, home]
        return value if device is None else self._copied(value, home, device, number)

    def _copied(
        self, value: relax.Expr, source: str, device: str | None, number: int | None = None
    ) -> relax.Expr:
        """A copy of a tensor, or of each field of a tuple."""
        assert device is not None, "a value without device is not copied"
        if isinstance(value.ty, relax.TupleType):
            fields = [self._item(value, i) for i in range(len(value.ty.fields))]
            return relax.Tuple([self._copied(field, source, device) for field in fields])
        assert isinstance(value, relax.Var)
        call = _op.to_vdevice(value, self._devices[device])
        ty, made = self._typed(value.ty, device), self._own(number, device)
        if made is None:
            made = self._fresh(f"{value.name}_on_{device.replace(':', '_')}", ty)
        self._bind(made, relax.Call(call.op, call.args, call.attrs, ret_ty=ty))
        self.copies.append(DeviceCopy(value.name, source, device))
        return made

    def _item(self, value: relax.Expr, index: int) -> relax.Expr:
        if isinstance(value, relax.Tuple):
            return value.fields[index]
        item = relax.TupleGetItem(value, index)
        made = self._fresh("field", item.ty)
        self._bind(made, item)
        return made

    def _variable(self, number: int, device: str | None, ty: ir.Type, keeps_name: bool) -> relax.Var:
        """The variable of a node if it is still free, else a new one."""
        own = self._own(number, device) if keeps_name else None
        return self._fresh(self._block.nodes[number].var.name, ty) if own is None else own

    def _own(self, number: int | None, device: str | None) -> relax.Var | None:
        """The variable of a node, if its value stays where it is planned and nothing is bound to it yet."""
        if number is None or device != self._block.place(number):
            return None
        var = self._block.nodes[number].var
        return None if var in self._bound else var

    def _fresh(self, name: str, ty: ir.Type) -> relax.Var:
        made, count = name, 0
        while made in self._taken:
            count += 1
            made = f"{name}_{count}"
        self._taken.add(made)
        return relax.DataflowVar(made, ty)

    def _bind(self, var: relax.Var, value: relax.Expr) -> None:
        self._bound.add(var)
        self.bindings.append(relax.VarBinding(var, value))

    def _typed(self, ty: ir.Type, device: str | None) -> ir.Type:
        """A type with all its tensors on ``device``."""
        if isinstance(ty, relax.TupleType):
            return relax.TupleType([self._typed(part, device) for part in ty.fields])
        if not isinstance(ty, relax.TensorType) or device is None:
            return ty
        return on(ty, self._devices[device])
