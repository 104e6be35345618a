"""Gives the variables of an imported module the names of the values in the ONNX model.

The importer calls them ``lv``, ``lv1``, ...; names such as ``layer1_relu`` are more useful in reports.
"""

from __future__ import annotations

import keyword
import re
import warnings
from collections.abc import Callable, Iterator

import onnx
from tvm import relax
from tvm.ir import IRModule

from ..errors import ModelError
from ..rewrites.bindings import substituted

_TAKEN = frozenset({"R", "T", "I", "cls"})
"""Names that TVMScript itself uses."""


def named(mod: IRModule, model: onnx.ModelProto, importer: Callable[[onnx.ModelProto], IRModule]) -> IRModule:
    """``mod``, imported from ``model``, whose variables of ``main`` have the names of their values in the model.

    The ``importer`` runs once more, with every value as an output: the fields of the result are the variables, in the
    order of the values. Where this is not possible, the result is ``mod``.
    """
    names = [name for node in model.graph.node for name in node.output if name]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the checker warns of outputs without types
            again = importer(_with_outputs(model, names))
    except ModelError:
        return mod
    old, new = _bindings(mod["main"]), _bindings(again["main"])
    fields = getattr(new[-1].value, "fields", ())
    if len(fields) != len(names) or not all(map(_same_step, old, new)):
        return mod
    position = {binding.var: number for number, binding in enumerate(new)}
    called: dict[relax.Var, str] = {}
    for name, value in zip(names, fields, strict=True):
        number = position.get(value, len(old))
        if number < len(old):
            called.setdefault(old[number].var, safe(name))
    functions = {
        gvar: _renamed(f, called) if isinstance(f, relax.Function) and gvar.name_hint == "main" else f
        for gvar, f in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def safe(name: str) -> str:
    """``name`` as an identifier that TVMScript prints and parses."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII).lstrip("_") or "value"
    if text[0].isdigit():
        return f"v{text}"
    return f"{text}_" if keyword.iskeyword(text) or text in _TAKEN else text


def meanings(model: onnx.ModelProto, name: str) -> Iterator[str]:
    """Names of values to look for instead of the node or value ``name``: its own, then those computed from them."""
    nodes = list(model.graph.node)
    values = [name, *(value for node in nodes if node.name == name for value in node.output)]
    known = dict.fromkeys(value for value in values if value)
    for value in known:
        yield safe(value)
    for node in nodes:  # ONNX demands that they are sorted topologically
        if any(source in known for source in node.input):
            known.update(dict.fromkeys(node.output))
            yield from map(safe, node.output)


def _with_outputs(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return copy


def _bindings(func: relax.Function) -> list[relax.Binding]:
    return [binding for block in func.body.blocks for binding in block.bindings]


def _same_step(old: relax.Binding, new: relax.Binding) -> bool:
    """Whether two imports of a model made the same binding."""
    if not isinstance(old.value, relax.Call):
        return True
    return isinstance(new.value, relax.Call) and old.value.op == new.value.op


def _renamed(func: relax.Function, called: dict[relax.Var, str]) -> relax.Function:
    """``func`` whose variables have the names in ``called``."""
    fresh = {var: type(var)(name, var.ty) for var, name in called.items()}
    reading = substituted(func, fresh)
    blocks = []
    for block in reading.body.blocks:
        bindings = [_rebound(binding, fresh) for binding in block.bindings]
        blocks.append(type(block)(bindings))
    body = relax.SeqExpr(blocks, reading.body.body)
    named = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)
    return relax.BlockBuilder().normalize(named)


def _rebound(binding: relax.Binding, fresh: dict[relax.Var, relax.Var]) -> relax.Binding:
    var = fresh.get(binding.var, binding.var)
    if isinstance(binding, relax.MatchCast):
        return relax.MatchCast(var, binding.value, binding.ty)
    return relax.VarBinding(var, binding.value)
