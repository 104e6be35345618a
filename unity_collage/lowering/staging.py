"""Copies of inputs and results, so that the kernels between them become one CUDA graph.

A graph repeats its launches with the same addresses. A caller's tensors are at other addresses each time, and so are
results. TVM captures only kernels whose arguments the program itself keeps. A kernel that reads an input or writes a
result is launched by itself, and divides the kernels around it into two graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, relax, te, tirx
from tvm.ir import IRModule

from ..graph.calls import op_name
from ..graph.in_place import VIEWS, MemoryOwners, changed_operands, noted
from ..rewrites.bindings import operands
from ..rewrites.scope import dtype_of, static_shape
from ..tvm_private import give_type


def staged(mod: IRModule) -> IRModule:
    """``mod`` with copies of the inputs that later kernels read too, and of the results that earlier kernels write.

    before: ``a = f(x); b = g(a); c = h(b, x)``   after: ``x1 = copy(x); a = f(x1); b = g(a); c = h(b, x1)``

    All shapes of ``mod`` are static. The kernels that copy are not scheduled.
    """
    copies = _Copies(mod)
    functions = {
        gvar: _staged(func, copies) if isinstance(func, relax.Function) else func
        for gvar, func in mod.functions_items()
    }
    return IRModule({**functions, **copies.kernels()}, attrs=mod.attrs, global_infos=mod.global_infos)


def _staged(func: relax.Function, copies: _Copies) -> relax.Function:
    if not isinstance(func.body, relax.SeqExpr) or not func.body.blocks or (func.attrs or {}).get("Codegen"):
        return func
    flow = _Flow.of(func)
    inputs, results = flow.late_inputs(), flow.early_results()
    if not inputs and not results:
        return func
    fresh = {var: relax.Var(f"{var.name}_staged", var.ty) for var in inputs}
    body = tvm_ffi.structural_map(func.body, (relax.Var, lambda var: fresh.get(var, var)))
    blocks = list(body.blocks)
    into = [relax.VarBinding(new, copies.call(old)) for old, new in fresh.items()]
    blocks[0] = type(blocks[0])([*into, *blocks[0].bindings])
    result = body.body
    if results:
        renamed = {var: relax.Var(f"{var.name}_result", var.ty) for var in results}
        out = [relax.VarBinding(new, copies.call(old)) for old, new in renamed.items()]
        value = _replaced(result, flow.values, renamed)
        result = relax.Var("results", func.ret_ty)
        last = blocks[-1]
        blocks[-1] = type(last)([*last.bindings, *out, relax.VarBinding(result, value)])
    body = relax.SeqExpr(blocks, result)
    return relax.BlockBuilder().normalize(
        relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)
    )


@dataclass(frozen=True, slots=True)
class _Flow:
    """What the kernels of a function read, and which of them write its results."""

    params: tuple[relax.Var, ...]
    values: Mapping[relax.Var, relax.Expr]
    """What each variable is bound to."""
    kernels: tuple[relax.Var, ...]
    """The variables that are bound to calls of kernels, in order."""
    results: tuple[relax.Var, ...]
    """The variables that the function returns, each once; fields of tuples in place of them."""
    changed: frozenset[relax.Var]
    """The variables with memory that a call changes in place."""

    @classmethod
    def of(cls, func: relax.Function) -> _Flow:
        bindings = [binding for block in func.body.blocks for binding in block.bindings]
        values = {binding.var: binding.value for binding in bindings}
        kernels = tuple(var for var, value in values.items() if _launches(value))
        results = tuple(dict.fromkeys(_leaves(func.body.body, values)))
        memory = MemoryOwners(bindings)
        written = (var for value in values.values() for var in changed_operands(value, noted(func)))
        changed = {owner for var in written for owner in memory.of(var)}
        return cls(tuple(func.params[: _inputs(func)]), values, kernels, results, frozenset(changed))

    def late_inputs(self) -> list[relax.Var]:
        """The tensor parameters that several kernels read, or that a kernel after one without parameters reads.

        Not those that are changed in place: the caller sees the change in its own tensor.
        """
        read = {var: self._inputs_of(self.values[var]) for var in self.kernels}
        count = Counter(var for roots in read.values() for var in roots)
        first = next((i for i, var in enumerate(self.kernels) if not read[var]), len(self.kernels))
        late = {root for var in self.kernels[first:] for root in read[var]}
        copied = {var for var in self.params if count[var] > 1} | late
        return [var for var in self.params if _is_tensor(var) and var in copied - self.changed]

    def early_results(self) -> list[relax.Var]:
        """The returned tensors that are written by a kernel before the last ones."""
        writers = {var: self._root(var) for var in self.results}
        last = set[relax.Var]()
        for kernel in reversed(self.kernels):
            if kernel not in writers.values():
                break
            last.add(kernel)
        early = set(self.kernels) - last
        return [var for var, kernel in writers.items() if kernel in early and _is_tensor(var)]

    def _inputs_of(self, value: relax.Expr) -> set[relax.Var]:
        return {root for var in operands(value) if (root := self._root(var)) in self.params}

    def _root(self, var: relax.Var) -> relax.Var:
        """The variable that owns the memory of ``var``, found through views, fields of tuples and other names."""
        value = self.values.get(var)
        while (source := _same_memory(value)) is not None:
            var, value = source, self.values.get(source)
        return var


def _inputs(func: relax.Function) -> int:
    """How many parameters are inputs: TVM treats the later ones as weights, which stay where they are."""
    return int((func.attrs or {}).get("num_input", len(func.params)))


def _launches(value: relax.Expr) -> bool:
    """Whether a value is made by a kernel; all calls count but views."""
    return isinstance(value, relax.Call) and _same_memory(value) is None


def _same_memory(value: relax.Expr | None) -> relax.Var | None:
    """The variable that a value is another name, a field or a view of, or None."""
    if isinstance(value, relax.TupleGetItem):
        value = value.tuple_value
    elif isinstance(value, relax.Call) and op_name(value) in VIEWS:
        value = value.args[0]
    return value if isinstance(value, relax.Var) else None


def _is_tensor(var: relax.Var) -> bool:
    return isinstance(var.ty, relax.TensorType) and static_shape(var) is not None


def _leaves(result: relax.Expr, values: Mapping[relax.Var, relax.Expr]) -> Iterator[relax.Var]:
    """The variables in a result."""
    made = values.get(result, result) if isinstance(result, relax.Var) else result
    if isinstance(made, relax.Tuple):
        for field in made.fields:
            yield from _leaves(field, values)
    elif isinstance(result, relax.Var):
        yield result


def _replaced(
    result: relax.Expr, values: Mapping[relax.Var, relax.Expr], renamed: Mapping[relax.Var, relax.Var]
) -> relax.Expr:
    """A result with other variables in the place of those in ``renamed``."""
    made = values.get(result, result) if isinstance(result, relax.Var) else result
    if isinstance(made, relax.Tuple):
        return relax.Tuple([_replaced(field, values, renamed) for field in made.fields])
    return renamed.get(result, result) if isinstance(result, relax.Var) else result


class _Copies:
    """Kernels that copy, one for each type of tensor."""

    def __init__(self, mod: IRModule) -> None:
        self._taken = {gvar.name_hint for gvar in mod.functions}
        self._kernels: dict[tuple[tuple[int, ...], str], tuple[ir.GlobalVar, tirx.PrimFunc]] = {}

    def kernels(self) -> dict[ir.GlobalVar, tirx.PrimFunc]:
        return dict(self._kernels.values())

    def call(self, var: relax.Var) -> relax.Call:
        """A call that copies ``var``."""
        shape, dtype = static_shape(var), dtype_of(var)
        assert shape is not None
        if (shape, dtype) not in self._kernels:
            self._kernels[shape, dtype] = self._made(shape, dtype)
        gvar, _ = self._kernels[shape, dtype]
        return relax.call_tir(gvar, relax.Tuple([var]), out_ty=var.ty)

    def _made(self, shape: Iterable[int], dtype: str) -> tuple[ir.GlobalVar, tirx.PrimFunc]:
        source = te.placeholder([tirx.const(extent, "int64") for extent in shape], dtype, "source")
        copy = te.compute(source.shape, lambda *index: source(*index), "copy")
        kernel = te.create_prim_func([source, copy], index_dtype_override="int64").without_attr(
            "global_symbol"
        )
        gvar = ir.GlobalVar(self._new_name())
        give_type(gvar, kernel.ty)
        return gvar, kernel

    def _new_name(self) -> str:
        names = ("copy", *(f"copy_{i}" for i in range(len(self._taken) + 1)))
        name = next(name for name in names if name not in self._taken)
        self._taken.add(name)
        return name
