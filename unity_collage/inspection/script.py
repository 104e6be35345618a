"""A partitioned module as a given plan: which bindings of the model each of its kernels computes.

Kernels are the functions that ``main`` calls with ``Codegen`` (the name of the backend) or ``Primitive`` (TVM), as
SearchPartition, ``FuseOps`` and ``MergeCompositeFunctions`` write them. The results of a call have the names of the
model's values. From these the kernel's operators are followed back to its parameters, side by side with the model's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..errors import CollageError, first_line, text_in
from ..graph import DataflowGraph
from ..graph.calls import op_name
from ..plan.given import GivenKernel
from ..plan.names import binding_names


def read_script(path: Path) -> IRModule:
    """The module in a file of TVMScript; raises CollageError."""
    text = text_in(path, "a module as text, as mod.script(show_meta=True) writes it")
    try:
        mod = tvm.script.from_source(text)
    except Exception as error:  # the parser is Python's and TVM's
        lost = "metadata[" in text and "Metadata omitted" in text
        advice = ": write it with mod.script(show_meta=True)" if lost else f": {first_line(error)}"
        raise CollageError(f"{path} is not TVMScript of a module{advice}") from error
    if not isinstance(mod, IRModule):
        raise CollageError(f"{path} is not TVMScript of a module: it is a {type(mod).__name__}")
    return mod


def kernels_in(mod: IRModule, name: str, graph: DataflowGraph, where: str) -> tuple[GivenKernel, ...]:
    """The kernels that the function ``name`` of ``mod`` calls, by the names of the bindings of ``graph``.

    Raises CollageError where a kernel does not compute what the model computes.
    """
    functions = {gvar.name_hint: func for gvar, func in mod.functions_items()}
    func = functions.get(name)
    if not isinstance(func, relax.Function):
        raise CollageError(f"{where}: it has no function {name}: give the whole partitioned module")
    names = binding_names(graph)
    index = {binding: number for number, binding in enumerate(names)}
    found: list[GivenKernel] = []
    for callee, outputs in _calls(func):
        kernel = functions.get(callee)
        backend = _backend(kernel)
        if backend is None or not isinstance(kernel, relax.Function):
            continue
        place = f"{where}, {name}, {callee}"
        walk = _Walk(graph, place)
        for number, output in outputs.items():
            if output not in index:
                raise CollageError(f"{place}: the model has no binding {output}")
            walk.follow(_result(kernel, number), index[output], _Scope(kernel))
        found.append(GivenKernel(backend, tuple(names[i] for i in sorted(walk.inside))))
    return tuple(found)


def _backend(func: object) -> str | None:
    attrs = func.attrs if isinstance(func, relax.Function) and func.attrs else {}
    if "Codegen" in attrs:
        return str(attrs["Codegen"])
    return "tvm" if "Primitive" in attrs else None


def _calls(func: relax.Function) -> Iterator[tuple[str, dict[int | None, str]]]:
    """Each call of a global function: its name, and the names of its results by their number; None: the only one."""
    bindings = [binding for block in func.body.blocks for binding in block.bindings]
    fields: dict[relax.Var, dict[int | None, str]] = {}
    for binding in bindings:
        value = binding.value
        if isinstance(value, relax.TupleGetItem) and isinstance(value.tuple_value, relax.Var):
            fields.setdefault(value.tuple_value, {})[int(value.index)] = str(binding.var.name)
    for binding in bindings:
        value = binding.value
        if isinstance(value, relax.Call) and isinstance(value.op, relax.GlobalVar):
            is_tuple = isinstance(binding.var.ty, relax.TupleType)
            single: dict[int | None, str] = {None: str(binding.var.name)}
            yield value.op.name_hint, fields.get(binding.var, {}) if is_tuple else single


@dataclass
class _Scope:
    """The values of a function's variables, and what its parameters stand for where it is called."""

    func: relax.Function
    given: Mapping[relax.Var, tuple[relax.Expr, _Scope]] = field(
        default_factory=dict[relax.Var, tuple[relax.Expr, "_Scope"]]
    )

    def __post_init__(self) -> None:
        bindings = [binding for block in self.func.body.blocks for binding in block.bindings]
        self._values = {binding.var: binding.value for binding in bindings}

    def value(self, var: relax.Var) -> relax.Expr | None:
        """What ``var`` is bound to; None for a parameter of the kernel."""
        return self._values.get(var)


@dataclass
class _Walk:
    """Follows the operators of a kernel and of the model from a result back to the kernel's parameters."""

    graph: DataflowGraph
    where: str
    inside: set[int] = field(default_factory=set[int])
    """The bindings of the model that the kernel computes."""

    def follow(self, expr: relax.Expr, index: int, scope: _Scope) -> None:
        """Follow ``expr``, which should be the value of the model's binding ``index``."""
        while isinstance(expr, relax.Var):
            if expr in scope.given:
                expr, scope = scope.given[expr]
                continue
            value = scope.value(expr)
            if value is None:
                return  # a parameter: its value is computed outside of the kernel
            expr = value
        if (entered := _entered(expr, scope)) is not None:
            self.follow(entered[0], index, entered[1])
            return
        node = self.graph.nodes[index]
        if _op(expr) != _op(node.value):
            raise self._differs(f"{node.var.name} is {_op(expr)} there, and {_op(node.value)} in the model")
        if index in self.inside:
            return
        self.inside.add(index)
        theirs, ours = list(_parts(expr)), list(_parts(node.value))
        if len(theirs) != len(ours):
            raise self._differs(
                f"{node.var.name} reads {len(theirs)} values there, and {len(ours)} in the model"
            )
        for their, our in zip(theirs, ours, strict=True):
            if isinstance(their, relax.Var) and isinstance(our, relax.Var) and our in self.graph.index_of:
                self.follow(their, self.graph.index_of[our], scope)

    def _differs(self, why: str) -> CollageError:
        return CollageError(f"{self.where}: {why}")


def _entered(expr: relax.Expr, scope: _Scope) -> tuple[relax.Expr, _Scope] | None:
    """The result, or a field of it, of the function inside of a kernel that ``expr`` calls; None if it calls none."""
    number: int | None = None
    if isinstance(expr, relax.TupleGetItem) and isinstance(expr.tuple_value, relax.Var):
        number, expr = int(expr.index), scope.value(expr.tuple_value) or expr
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, relax.Var):
        return None
    inner = scope.value(expr.op)
    if not isinstance(inner, relax.Function):
        return None
    given = {param: (arg, scope) for param, arg in zip(inner.params, expr.args, strict=True)}
    return _result(inner, number), _Scope(inner, given)


def _result(func: relax.Function, number: int | None) -> relax.Expr:
    """The result of a function, or the field ``number`` of it."""
    result = func.body.body
    if number is None:
        return result
    if isinstance(result, relax.Var):
        bound = _Scope(func).value(result)
        result = result if bound is None else bound
    return result.fields[number] if isinstance(result, relax.Tuple) else relax.TupleGetItem(result, number)


def _op(value: relax.Expr) -> str:
    return op_name(value) or type(value).__name__


def _parts(value: relax.Expr) -> Iterator[relax.Expr]:
    """The values that an expression reads, in order; the fields of tuples in their place."""
    if isinstance(value, relax.Call):
        for arg in value.args:
            yield from _parts(arg) if isinstance(arg, relax.Tuple) else (arg,)
    elif isinstance(value, relax.Tuple):
        yield from value.fields
    elif isinstance(value, relax.TupleGetItem):
        yield value.tuple_value
