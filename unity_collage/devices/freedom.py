"""Which devices a value may be on: those that agree with its place in all parts that an annotation specifies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvm import ir, relax
from tvm.ir import IRModule

from ..graph import DataflowGraph
from ..graph.dataflow import Node
from ..plan.placed import ID, KIND, PARTS, SCOPE, TARGET
from .copies import why_left_alone
from .reading import MADE_BY_HOST, READ_BY_HOST, free_parts
from .table import DeviceTable
from .trees import tensors


class Freedom:
    """The devices that each value of a planned function may be on."""

    def __init__(self, func: relax.Function, table: DeviceTable, labels: Sequence[str]) -> None:
        """``labels``: those of the VDevices that may be chosen."""
        self._table = table
        self._places = {table.label(i): _place(device) for i, device in enumerate(table.devices)}
        self._labels = tuple(labels)
        self._free = free_parts(func)

    def home(self, ty: ir.Type) -> str | None:
        """The label of the device where PlanDevices has put a value; None for a value without device."""
        device = next((each.vdevice for each in tensors(ty) if each.vdevice is not None), None)
        return None if device is None else self._table.label_of_device(device)

    def of(self, node: Node) -> tuple[str, ...]:
        """The labels of the devices that a node may run on: only its own if annotations allow no other."""
        home = self.home(node.var.ty)
        if home is None:
            return ()
        if node.op.startswith("call:") or not node.in_dataflow:
            return (home,)
        named = list(_named(node.var.ty, node.var.name))
        return tuple(label for label in self._labels if all(self._may(label, *each) for each in named)) or (
            home,
        )

    def _may(self, label: str, name: str, device: relax.VDevice) -> bool:
        """Whether a tensor on ``device`` may be on the device of ``label`` instead."""
        on, free = self._free.get(name, (-1, ()))
        free = free if on == self._table.index(device) else ()
        own, other = _place(device), self._places[label]
        return all(own[part] == other[part] for part in PARTS if part not in free)


def _place(device: relax.VDevice) -> dict[str, str]:
    kind, number = int(device.target.get_target_device_type()), int(device.vdevice_id)
    return {KIND: str(kind), TARGET: str(device.target), ID: str(number), SCOPE: str(device.memory_scope)}


def _named(ty: ir.Type, name: str) -> Iterator[tuple[str, relax.VDevice]]:
    """The devices of a type's tensors, each by the name that PlanDevices lists it by."""
    if isinstance(ty, relax.TupleType):
        for number, part in enumerate(ty.fields):
            yield from _named(part, f"{name}.{number}")
    elif isinstance(ty, relax.TensorType) and ty.vdevice is not None:
        yield name, ty.vdevice


def why_not_moved(graph: DataflowGraph, table: DeviceTable, mod: IRModule) -> str | None:
    """Why the values of a planned function of ``mod`` stay where they are, or None."""
    if relax.analysis.defined_symbolic_vars(graph.func):
        return "it has free sizes, and what a copy costs depends on them"
    if (reason := why_left_alone(graph.func, mod)) is not None:
        return reason
    for param in graph.func.params:
        if _on_several(table, [param.ty]):
            return f"the fields of the parameter `{param.name}` are on several devices"
    for node in graph.nodes:
        if node.op in (*READ_BY_HOST, *MADE_BY_HOST):
            return f"`{node.var.name}` is read or made by the host"
        value, is_called = node.value, node.op.startswith("call:")
        read = [arg.ty for arg in value.args] if is_called and isinstance(value, relax.Call) else []
        if node.in_dataflow and _on_several(table, [node.var.ty, *read]):
            return f"`{node.var.name}` has values on several devices"
    return None


def _on_several(table: DeviceTable, types: Sequence[ir.Type]) -> bool:
    found = (each.vdevice for ty in types for each in tensors(ty))
    return len({table.index(device) for device in found if device is not None}) > 1
