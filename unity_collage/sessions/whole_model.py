"""A whole model as one kernel of an inference runtime, which gets the user's file unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import relax
from tvm.ir import IRModule

from ..annotations import EXTERNAL_MODS
from ..errors import CollageError
from ..graph.shapes import dtype_of, shape_of
from ..runtime.custom_op_libraries import CustomOpLibrary, files_of
from .module import Bytes, SessionModel, session_module
from .runtimes import InferenceRuntime

WHOLE = "the whole model"
"""The name of the kernel in reports."""


@dataclass(frozen=True, slots=True)
class WholeModel:
    """A model in ONNX's format beside the module that was imported from it."""

    onnx: Callable[[], bytes | Bytes]
    """Writes the model with the sizes of the module; raises ModelError where that is not possible."""
    inputs: Sequence[str]
    outputs: Sequence[str]
    libraries: Sequence[CustomOpLibrary] = ()
    """Those with operators of the model."""


def whole_model(model: WholeModel, imported: IRModule, runtime: InferenceRuntime, precision: str) -> IRModule:
    """A module with a ``main`` that calls ``runtime`` for all of the model; its types are those of ``imported``.

    Raises CollageError for results that are not tensors, or with sizes that do not follow from the inputs. It also does
    for inputs or results that the runtime does not take, and for libraries of operators that it does not register.
    """
    if model.libraries and not runtime.registers_libraries:
        raise CollageError(
            f"{runtime.title} lacks operators of the model, which ONNX Runtime has from {files_of(model.libraries)}"
        )
    main = relax.utils.copy_with_new_vars(imported["main"])
    results = main.ret_ty
    if reason := why_not_known(results) or _why_not_taken(main, runtime):
        raise CollageError(reason)
    symbol = f"{runtime.name}_main"
    settings = runtime.settings_for(precision)
    written = runtime.written(model.onnx())
    session = SessionModel(symbol, written, model.inputs, model.outputs, settings, model.libraries)
    fields = list(results.fields) if isinstance(results, relax.TupleType) else results
    builder = relax.BlockBuilder()
    with builder.function("main", list(main.params)):
        with builder.dataflow():
            call = relax.call_dps_packed(symbol, relax.Tuple(list(main.params)), out_ty=fields)
            result = builder.emit_output(call)
        # A call with one result returns a tensor, where the model may return a tuple of one.
        is_tuple_of_one = isinstance(results, relax.TupleType) and len(results.fields) == 1
        builder.emit_func_output(relax.Tuple([result]) if is_tuple_of_one else result)
    return builder.get().with_attr(EXTERNAL_MODS, [session_module(runtime.name, [session])])


def _why_not_taken(main: relax.Function, runtime: InferenceRuntime) -> str | None:
    """Why a runtime with a format of its own does not take the inputs or results of a model, or None."""
    if runtime.convert is None:
        return None
    returned = main.ret_ty
    results = list(returned.fields) if isinstance(returned, relax.TupleType) else [returned]
    inputs = [param.ty for param in main.params]
    for what, types in (("input", inputs), ("result", results)):
        for number, ty in enumerate(types):
            if not isinstance(ty, relax.TensorType):
                return f"{what} {number} is not a tensor"
            if dtype_of(ty) not in runtime.takes:
                return f"{what} {number} is {dtype_of(ty)}, and {runtime.title} takes {' and '.join(runtime.takes)}"
            if (shape := shape_of(ty)) is None:
                return (
                    f"the sizes of {what} {number} are open, and {runtime.title} takes models of fixed sizes"
                )
            if 0 in shape:
                return f"{what} {number} has no elements"
    return None


def why_not_known(results: relax.Type) -> str | None:
    """Why one of ``results`` is not a tensor whose sizes follow from the inputs, or None."""
    fields = list(results.fields) if isinstance(results, relax.TupleType) else [results]
    for number, field in enumerate(fields):
        if not isinstance(field, relax.TensorType):
            return f"result {number} is not a tensor"
        if not isinstance(field.shape, relax.ShapeExpr):
            return f"the sizes of result {number} are known only when the model has run"
    return None
