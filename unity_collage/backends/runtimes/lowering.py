"""From functions of operators to sessions of an inference runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax
from tvm.runtime import Module

from ...errors import CollageError
from ...graph.calls import calls
from ...graph.shapes import dtype_of
from ...sessions import InferenceRuntime, SessionModel, session_module

_MOST_BYTES = 2**31 - 1
"""A model of ONNX is one message of Protocol Buffers, which are no larger."""


def region_codegen(runtime: InferenceRuntime) -> Callable[..., list[Module]]:
    """A code generator that makes one module of sessions of ``runtime``; a function of the module for each region."""

    def codegen(
        functions: Sequence[relax.Function], options: Mapping[str, Any], _constants: Mapping[Any, str]
    ) -> list[Module]:
        return [session_module(runtime.name, [session_of(func, runtime, options) for func in functions])]

    return codegen


def session_of(
    func: relax.Function, runtime: InferenceRuntime, options: Mapping[str, Any] | None = None
) -> SessionModel:
    """The session for a function with ``global_symbol``, with the settings of a whole model of its precision.

    ``options``: settings of the runtime that a user wants. They count more than ours.

    Raises NotExported for operators that ONNX lacks, and CollageError for models that are too large, or that the
    runtime cannot convert.
    """
    from ...to_onnx import exported

    symbol = str(func.attrs["global_symbol"])
    results = len(func.ret_ty.fields) if isinstance(func.ret_ty, relax.TupleType) else 1
    inputs = [f"input_{number}" for number in range(len(func.params))]
    outputs = [f"result_{number}" for number in range(results)]
    model = exported(func, inputs=inputs, outputs=outputs)
    if model.ByteSize() > _MOST_BYTES:
        raise CollageError(f"{symbol}: its weights take more than the 2 GB that a model of ONNX may have")
    asked = {key: str(value) for key, value in (options or {}).items()}
    settings = runtime.with_options(asked).settings_for(_precision(func), is_region=True)
    return SessionModel(symbol, runtime.written(model.SerializeToString()), inputs, outputs, settings)


def _precision(func: relax.Function) -> str:
    """The precision of this package that a function is in."""
    types = [call.ty for call in _all_calls(func)]
    fields = [field for ty in types for field in (ty.fields if isinstance(ty, relax.TupleType) else [ty])]
    narrow = any(isinstance(field, relax.TensorType) and dtype_of(field) == "bfloat16" for field in fields)
    return "bf16" if narrow else "f32"


def _all_calls(func: relax.Function) -> list[relax.Call]:
    """The calls of a function, and of the functions inside it."""
    found = list(calls(func))
    for block in func.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Function):
                found += _all_calls(binding.value)
    return found
