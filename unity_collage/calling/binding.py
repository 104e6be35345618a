"""Weights that are parameters of a model's ``main`` become constants, which kernels can pack before the first run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from tvm import relax
from tvm.ir import GlobalVar, IRModule

from ..defaults import FILES_OF_TORCH
from ..errors import CollageError, with_names
from ..frontend.models import Imported, Model
from ..frontend.onnx.constant_inputs import declared_inputs, make_constant
from ..frontend.onnx.reading import OnnxFile, read_onnx
from ..tvm_private import give_type
from .describe import signature_of
from .inputs import Sizes, taking
from .memory import HOST
from .signature import TensorSpec, shown
from .tensors import array_of_tensor, copied_tensor

NUM_INPUT = "num_input"
"""Attribute of ``main``, as TVM's frontends write it: how many of its first parameters are inputs, not weights."""

Params = Mapping[str, Any] | Sequence[Any]
"""Weights by the name of their parameter, or for all parameters behind ``num_input``, in order."""


def with_constant_inputs(model: Model, params: Params) -> tuple[Model, Params]:
    """An ONNX model with the inputs that ``params`` names as constants, and the parameters that are left to bind.

    Other models, and weights without names, are bound when the model is imported. ``model`` itself does not change.
    Raises CollageError for a name that there is not, and for another type or shape.
    """
    if not params or not isinstance(params, Mapping):
        return model, params
    if isinstance(model, (str, Path)) and Path(model).suffix not in FILES_OF_TORCH:
        file = read_onnx(Path(model), whole=False)
    elif isinstance(model, (onnx.ModelProto, OnnxFile)):
        given = model if isinstance(model, OnnxFile) else OnnxFile(model)
        file = OnnxFile(onnx.ModelProto(), given.files)
        file.model.CopyFrom(given.model)
    else:
        return model, params
    sizes: Sizes = {}
    arrays = _arrays(file.model, params, sizes)
    make_constant(file.model, arrays, {dim: extent for dim, (extent, _) in sizes.items()})
    return file, ()


def _arrays(model: onnx.ModelProto, params: Mapping[str, Any], sizes: Sizes) -> dict[str, np.ndarray]:
    """The values of inputs as arrays of their types and shapes; ``sizes`` gets the open dimensions that they fix."""
    declared = declared_inputs(model)
    found: dict[str, np.ndarray] = {}
    for name, value in params.items():
        if name not in declared:
            raise _no_parameter(name, declared)
        dtype, shape = declared[name]
        take = taking(TensorSpec(name, dtype, shape), HOST)
        found[name] = array_of_tensor(take(_of_type(value, dtype), sizes))
    return found


def _of_type(value: Any, dtype: str) -> Any:
    """Python's numbers for an input of floats are rounded to its type; all else has the right type already."""
    is_float = np.dtype(dtype).kind not in "iub"
    if not is_float or not isinstance(value, (int, float, list, tuple)) or isinstance(value, bool):
        return value
    numbers = np.asarray(value)
    return numbers.astype(dtype) if numbers.dtype.kind in "iuf" else value


def _no_parameter(name: str, known: Collection[str]) -> CollageError:
    text = with_names(f"the model has no parameter {shown(name)} to bind", name, list(known), 0)
    return CollageError(
        f"{text}{' It' if text.endswith('?') else '; it'} has {', '.join(map(shown, known)) or 'none'}"
    )


def with_params(source: Imported, params: Params) -> Imported:
    """``source`` with copies of ``params`` as constants in place of these parameters of ``main``.

    Values are arrays or tensors of any library, as a program takes them. Raises CollageError for a name that there is
    not, and for another type or shape.
    """
    if not params:
        return source
    named = params if isinstance(params, Mapping) else _behind_inputs(source, params)
    if unknown := [name for name in named if name not in source.inputs]:
        raise _no_parameter(unknown[0], source.inputs)
    specs = signature_of(source.mod, source.mod, source.inputs, None).inputs
    sizes: Sizes = {}
    bound: dict[relax.Var, Any] = {}
    for spec, param in zip(specs, source.mod["main"].params, strict=True):
        if spec.name not in named:
            continue
        if not isinstance(spec, TensorSpec):
            raise CollageError(f"{shown(spec.name)} cannot be bound: it is {spec}, and constants are tensors")
        # A copy: a later change of the array does not change the program.
        bound[param] = copied_tensor(taking(spec, HOST)(named[spec.name], sizes))
    if not bound:
        return source
    is_kept = [param not in bound for param in source.mod["main"].params]
    mod = _renewed(relax.transform.BindParams("main", bound)(source.mod), is_kept)
    names = tuple(name for name, kept in zip(source.inputs, is_kept, strict=True) if kept)
    return replace(source, mod=mod, inputs=names, whole=None, eager=None)


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


def _renewed(mod: IRModule, is_kept: Sequence[bool]) -> IRModule:
    """``mod`` whose ``main`` has another type than before, and whose ``num_input`` counts the inputs that are left.

    ``is_kept``: of each parameter of before. BindParams leaves the type of the global variable as it was.
    """
    main = mod["main"]
    if NUM_INPUT in (main.attrs or {}):
        main = main.with_attr(NUM_INPUT, sum(is_kept[: int(main.attrs[NUM_INPUT])]))
    gvar = GlobalVar("main")
    give_type(gvar, main.ty)
    others = {each: func for each, func in mod.functions_items() if each.name_hint != "main"}
    return IRModule({gvar: main, **others}, attrs=mod.attrs, global_infos=mod.global_infos)
