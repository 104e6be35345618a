"""Weights that are parameters of a model's ``main`` become constants, which kernels can pack before the first run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm import relax
from tvm.ir import IRModule

from ..errors import CollageError
from ..frontend.models import Imported
from .describe import signature_of
from .inputs import Sizes, taking
from .memory import HOST
from .signature import TensorSpec, shown
from .tensors import copied_tensor

NUM_INPUT = "num_input"
"""Attribute of ``main``, as TVM's frontends write it: how many of its first parameters are inputs, not weights."""

Params = Mapping[str, Any] | Sequence[Any]
"""Weights by the name of their parameter, or for all parameters behind ``num_input``, in order."""


def with_params(source: Imported, params: Params) -> Imported:
    """``source`` whose ``main`` has copies of ``params`` as constants in place of those parameters.

    Values are arrays or tensors of any library, as a program takes them. Raises CollageError for a name that there is
    not, and for another type or shape.
    """
    if not params:
        return source
    named = params if isinstance(params, Mapping) else _behind_inputs(source, params)
    if unknown := [name for name in named if name not in source.inputs]:
        inputs = ", ".join(map(shown, source.inputs)) or "none"
        raise CollageError(f"the model has no parameter {shown(unknown[0])} to bind; it has {inputs}")
    specs = signature_of(source.mod, source.mod, source.inputs, None).inputs
    sizes: Sizes = {}
    bound: dict[relax.Var, Any] = {}
    for spec, param in zip(specs, source.mod["main"].params, strict=True):
        if spec.name not in named:
            continue
        if not isinstance(spec, TensorSpec):
            raise CollageError(f"{shown(spec.name)} cannot be bound: it is {spec}, and constants are tensors")
        # A copy: who changes the array afterwards does not change the program.
        bound[param] = copied_tensor(taking(spec, HOST)(named[spec.name], sizes))
    if not bound:
        return source
    is_kept = [param not in bound for param in source.mod["main"].params]
    mod = _with_num_input(relax.transform.BindParams("main", bound)(source.mod), is_kept)
    names = tuple(name for name, kept in zip(source.inputs, is_kept, strict=True) if kept)
    return replace(source, mod=mod, inputs=names, whole=None)


def has_weights(source: Imported) -> bool:
    """Whether parameters of ``main`` are weights: those behind ``num_input``."""
    main = source.mod["main"]
    return int((main.attrs or {}).get(NUM_INPUT, len(main.params))) < len(main.params)


def _behind_inputs(source: Imported, params: Sequence[Any]) -> dict[str, Any]:
    """``params`` by the names of the parameters behind ``num_input``."""
    attrs = source.mod["main"].attrs or {}
    if NUM_INPUT not in attrs:
        raise CollageError(f"main has no attribute {NUM_INPUT}: give its weights by name, as a dict")
    names = source.inputs[int(attrs[NUM_INPUT]) :]
    if len(names) != len(params):
        raise CollageError(
            f"main has {len(names)} parameters behind its inputs, and {len(params)} were given"
        )
    return dict(zip(names, params, strict=True))


def _with_num_input(mod: IRModule, is_kept: Sequence[bool]) -> IRModule:
    """``mod`` whose ``num_input`` counts the inputs that are left; ``is_kept``: of each parameter of before."""
    gvar, main = mod.get_global_var("main"), mod["main"]
    if NUM_INPUT not in (main.attrs or {}):
        return mod
    left = sum(is_kept[: int(main.attrs[NUM_INPUT])])
    functions = {**dict(mod.functions_items()), gvar: main.with_attr(NUM_INPUT, left)}
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
