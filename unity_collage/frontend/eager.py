"""A model of PyTorch as one opaque call: PyTorch runs it operator by operator, as it runs the module itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.ir import IRModule

from ..errors import CollageError
from ..graph.shapes import dtype_of
from ..runtime import torch_calls
from ..sessions import why_not_known
from .opaque import Result, allocating_call, parts_of


@dataclass(frozen=True, slots=True)
class EagerModel:
    """A model of PyTorch beside the module that was imported from it."""

    release: str
    """Such as ``PyTorch 2.13.0``."""
    graph: str
    """A digest of its operators, without the values of weights."""
    stored: Callable[[], bytes]
    """Writes it for :mod:`unity_collage.runtime.torch_models`; raises CollageError where that is not possible."""

    @property
    def version(self) -> str:
        """What a time of it holds for, for the same weights."""
        return f"{self.release} {self.graph}"


def eager_module(model: EagerModel, imported: IRModule) -> IRModule:
    """A module with a ``main`` that calls PyTorch for all of the model; its types are those of ``imported``.

    Raises CollageError for results that are not tensors, or with sizes that do not follow from the inputs.
    """
    main = relax.utils.copy_with_new_vars(imported["main"])
    if reason := why_not_known(main.ret_ty):
        raise CollageError(reason)
    returned = main.ret_ty
    types: list[Any] = list(returned.fields) if isinstance(returned, relax.TupleType) else [returned]
    results = [Result(dtype_of(ty), list(ty.shape)) for ty in types]
    data = model.stored()
    stored = relax.const(np.frombuffer(data, np.uint8))
    operands = [ir.StringImm(hashlib.sha256(data).hexdigest()), stored, *main.params]
    builder = relax.BlockBuilder()
    with builder.function("main", list(main.params)):
        with builder.dataflow():
            call = allocating_call(torch_calls.symbol_of(torch_calls.WHOLE_MODEL), operands, results)
            made = parts_of(builder.emit(call), len(results))
            parts = [builder.match_cast(builder.emit(part), ty) for part, ty in zip(made, types, strict=True)]
            is_tuple = isinstance(returned, relax.TupleType)
            output = builder.emit_output(relax.Tuple(parts) if is_tuple else parts[0])
        builder.emit_func_output(output)
    return builder.get()
