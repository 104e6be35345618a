"""ShareStorages: values whose sizes are known at run time share memory, if they are not alive together.

TVM's planner gives a storage of a symbolic size to a later value only if both sizes are equal expressions. Most
values of a network with a free batch would have memory of their own, and leave the caches of the processor.

Reads    the module behind LowerAllocTensor.
Writes   ``R.memory.alloc_storage`` of symbolic sizes: fewer ones, each as large as the largest value in it.
Keeps    the shapes of all tensors, storages of constant sizes, and those of results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, sym, tirx
from tvm.ir import IRModule

from ..graph.calls import op_name
from ..graph.free_sizes import substituted
from ..graph.shapes import ints
from ..graph.variants import like_of

_LIKELY = 64
"""A free size of a function that says nothing about its sizes."""

Kind = tuple[Any, ...]
"""The device, the memory scope and the element type of a storage."""


@tvm.transform.module_pass(opt_level=0, name="ShareStorages")
class ShareStorages:
    """Give one storage to values that are not alive together, in the order of their kernels.

    before: ``s = alloc_storage(R.shape([4 * n]))``, later ``t = alloc_storage(R.shape([8 * n]))``
    after:  ``s = alloc_storage(R.shape([max(4 * n, 8 * n)]))``, and ``s`` in place of ``t``
    """

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions: dict[ir.GlobalVar, ir.BaseFunc] = {
            gvar: _shared(func) if isinstance(func, relax.Function) else func
            for gvar, func in mod.functions_items()
        }
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


@dataclass(slots=True, eq=False)
class _Storage:
    """A storage of a symbolic size; ``begin`` and ``end`` are the numbers of its first and its last binding."""

    var: relax.Var
    kind: Kind
    nbytes: ir.Expr
    likely: int
    """The bytes at likely sizes, by which values are put together."""
    begin: int
    end: int


@dataclass(slots=True, eq=False)
class _Slot:
    """Storages that become the first of them."""

    storages: list[_Storage]

    @property
    def likely(self) -> int:
        return max(each.likely for each in self.storages)

    def can_hold(self, storage: _Storage) -> bool:
        last = self.storages[-1]
        return last.kind == storage.kind and last.end < storage.begin

    def nbytes(self) -> ir.Expr:
        sizes = [each.nbytes for each in self.storages]
        return sym.Analyzer().simplify(reduce(tirx.max, sizes[1:], sizes[0]))


def _shared(func: relax.Function) -> relax.Function:
    slots = [slot for slot in _slots(_Uses.of(func).storages) if len(slot.storages) > 1]
    if not slots:
        return func
    first = {other.var: slot.storages[0].var for slot in slots for other in slot.storages[1:]}
    nbytes = {slot.storages[0].var: slot.nbytes() for slot in slots}
    assert isinstance(func.body, relax.SeqExpr)
    blocks = [
        relax.BindingBlock([_sized(each, nbytes) for each in block.bindings if each.var not in first])
        for block in func.body.blocks
    ]
    body = relax.SeqExpr(blocks, func.body.body)
    changed = relax.Function(
        func.params, body, func.ret_ty, is_pure=func.is_pure, attrs=func.attrs, span=func.span
    )
    renamed: Any = tvm_ffi.structural_map(changed, (relax.Var, lambda var: first.get(var, var)))
    return renamed


def _sized(binding: relax.Binding, nbytes: Mapping[relax.Var, ir.Expr]) -> relax.Binding:
    """The binding of a storage with its new size; every other one as it is."""
    if binding.var not in nbytes:
        return binding
    call: Any = binding.value
    args = [relax.ShapeExpr([nbytes[binding.var]]), *call.args[1:]]
    return relax.VarBinding(binding.var, relax.Call(call.op, args, call.attrs, call.ty_args, ret_ty=call.ty))


def _slots(storages: Sequence[_Storage]) -> list[_Slot]:
    """Each value gets the smallest free slot that is large enough, else the largest one, which grows."""
    slots: list[_Slot] = []
    for storage in storages:
        free = [slot for slot in slots if slot.can_hold(storage)]
        enough = [slot for slot in free if slot.likely >= storage.likely]
        if free:
            best = min(enough, key=_likely) if enough else max(free, key=_likely)
            best.storages.append(storage)
        else:
            slots.append(_Slot([storage]))
    return slots


def _likely(slot: _Slot) -> int:
    return slot.likely


@dataclass(slots=True)
class _Uses:
    """The storages of a function with a size that follows from its parameters, in order, without those of results."""

    likely: Mapping[tirx.Var, ir.Expr]
    """A number for each symbolic size of the parameters."""
    storages: list[_Storage] = field(default_factory=list[_Storage])
    _within: dict[relax.Var, set[int]] = field(default_factory=dict[relax.Var, set[int]])
    """The numbers of the storages that a variable may refer to: all that its value mentions."""

    @staticmethod
    def of(func: relax.Function) -> _Uses:
        like, symbols = like_of(func), [var for param in func.params for var in _symbols(param.ty)]
        uses = _Uses({var: tirx.IntImm("int64", like.get(var.name, _LIKELY)) for var in symbols})
        if not symbols or not isinstance(func.body, relax.SeqExpr):
            return uses
        bindings = [binding for block in func.body.blocks for binding in block.bindings]
        for number, binding in enumerate(bindings):
            uses._add(number, binding)
        returned = uses._mentioned(func.body.body)
        uses.storages = [each for number, each in enumerate(uses.storages) if number not in returned]
        return uses

    def _add(self, number: int, binding: relax.Binding) -> None:
        value: Any = binding.value
        if op_name(value) == "relax.memory.alloc_storage":
            self._allocated(number, binding.var, value)
            return
        mentioned = self._mentioned(value)
        for each in mentioned:
            self.storages[each].end = number
        self._within[binding.var] = mentioned

    def _allocated(self, number: int, var: relax.Var, call: relax.Call) -> None:
        shape: Any = call.args[0]
        if not isinstance(shape, relax.ShapeExpr) or len(shape.values) != 1 or ints(shape.values) is not None:
            return
        (nbytes,) = shape.values
        at: Any = sym.Analyzer().simplify(substituted(nbytes, lambda var: self.likely.get(var, var)))
        if not isinstance(at, tirx.IntImm):
            return  # a size that is known only behind some kernel
        kind = tuple(str(arg) for arg in call.args[1:])
        self._within[var] = {len(self.storages)}
        self.storages.append(_Storage(var, kind, nbytes, int(at.value), number, number))

    def _mentioned(self, expr: relax.Expr) -> set[int]:
        return {each for var in _variables(expr) for each in self._within.get(var, ())}


def _variables(expr: relax.Expr) -> Iterator[relax.Var]:
    """The variables in an expression, those inside of branches too."""
    found: list[relax.Expr] = []
    relax.analysis.post_order_visit(expr, found.append)
    return (each for each in found if isinstance(each, relax.Var))


def _symbols(ty: ir.Type) -> list[tirx.Var]:
    """The symbolic sizes that a parameter of this type defines."""
    if isinstance(ty, relax.TupleType):
        return [var for field_ in ty.fields for var in _symbols(field_)]
    values: Any = (
        ty.values if isinstance(ty, relax.ShapeType) else getattr(getattr(ty, "shape", None), "values", None)
    )
    return [dim for dim in values or () if isinstance(dim, tirx.Var)]
