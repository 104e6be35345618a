"""From functions of one or two operators to kernels of PyTorch, and the reasons why there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, relax
from tvm.runtime import Module

from ...errors import CollageError
from ...graph.calls import op_name
from ...runtime import torch_calls
from ...runtime.libraries import load_base
from ...runtime.torch_kernels import KIND, TorchKernel
from ..native.flatten import Flat, NotFlat, flatten
from ..native.program import Blob
from ..native.values import array_of, dtype_of, shape_of, static_shape
from . import elementwise, images, tensors
from .asked import AskedCall, NotAten, Operand, ResultPlace, floats, rank_of, shape_with
from .elementwise import Handler
from .schemas import kernel_of

HANDLERS: Mapping[str, Handler] = {
    f"relax.{name}": handler
    for name, handler in {**elementwise.HANDLERS, **tensors.HANDLERS, **images.HANDLERS}.items()
}
"""How each operator is asked for, by its name."""


def why_not_call(call: relax.Call) -> str | None:
    """Why ATen does not compute a call, or None."""
    return _why_not([call])


def why_not_linear(calls: Sequence[relax.Call]) -> str | None:
    """Why ATen does not compute a product and the sum with it in one call, or None."""
    product, total = calls
    summand = next((arg for arg in total.args if shape_of(arg) == shape_of(product)), None)
    return "the sum repeats the product" if summand is None else _why_not(calls, summand)


def _why_not(calls: Sequence[relax.Call], inner: relax.Expr | None = None) -> str | None:
    if torch_calls.is_missing():
        return torch_calls.MISSING
    try:
        kernel(calls, list(_values(calls)), inner)
    except NotAten as error:
        return str(error)
    return None


def _values(calls: Sequence[relax.Call]) -> dict[relax.Expr, None]:
    """The tensors that the calls read, each once."""
    read = [arg for call in calls for arg in call.args]
    flat = [field for arg in read for field in (arg.fields if isinstance(arg, relax.Tuple) else [arg])]
    return dict.fromkeys(value for value in flat if isinstance(value.ty, relax.TensorType))


def kernel(
    calls: Sequence[relax.Call], values: Sequence[relax.Expr], inner: relax.Expr | None = None
) -> TorchKernel:
    """The kernel of an operator, or of a product and the sum with it; raises NotAten.

    ``values``: the tensors that it reads. ``inner``: the product as the sum reads it.
    """
    if inner is not None:
        product, total = calls
        return kernel_of(_linear(product, total, inner), total, values)
    (call,) = calls
    handler = HANDLERS.get(op_name(call))
    if handler is None:
        raise NotAten("it has no counterpart in ATen here")
    return kernel_of(handler(call), call, values)


def _linear(product: relax.Call, total: relax.Call, inner: relax.Expr) -> AskedCall:
    """``addmm``: rows times a matrix, and a bias of its columns or a matrix like the product."""
    floats(total)
    left, right = product.args
    addends = [arg for arg in total.args if arg != inner]
    if len(addends) != 1:
        raise NotAten("both operands are the product")
    if rank_of(left) < 2 or rank_of(right) != 2 or shape_with(total) != shape_with(product):
        raise NotAten("it is not rows times one matrix")
    columns, shape = shape_with(product)[-1], shape_with(addends[0])
    is_matrix = rank_of(left) == 2 and shape == shape_with(product)
    if shape not in ((columns,), (1, columns)) and not is_matrix:
        raise NotAten("the addend is neither a bias of the columns nor a matrix like the product")
    rows = Operand(left).seen("reshape", [-1, shape_with(left)[-1]])
    place = ResultPlace(written=(("view", [-1, columns]),))
    return AskedCall("addmm", (Operand(addends[0]), rows, Operand(right)), places=(place,))


def codegen(
    functions: Sequence[relax.Function], _options: Mapping[str, Any], _constants: Mapping[Any, str]
) -> list[Module]:
    """One module with a kernel for each function; raises CollageError for operators that ATen lacks."""
    load_base()
    blob = Blob()
    kernels = [_described(func, blob) for func in functions]
    create = tvm_ffi.get_global_func(f"{KIND}.create")
    return [create(json.dumps({"kernels": kernels}), blob.taken())]


def _described(func: relax.Function, blob: Blob) -> dict[str, Any]:
    """A kernel as the native module reads it; its constants go into ``blob``."""
    symbol = str(func.attrs["global_symbol"])
    if torch_calls.is_missing():
        raise CollageError(f"{symbol}: {torch_calls.MISSING}")
    try:
        flat = flatten(func)
        calls = [flat.resolved(binding.call) for binding in flat.bindings]
        constants = [value for value in _values(calls) if isinstance(value, ir.GenericConst)]
        made = kernel(calls, [*flat.params, *constants], _inner(flat))
    except (NotAten, NotFlat) as error:
        raise CollageError(f"{symbol}: {error}") from error
    return {
        "name": symbol,
        "call": made.to_json(),
        "constants": [_constant(value, blob) for value in constants],
    }


def _inner(flat: Flat) -> relax.Expr | None:
    """The product in a function of a product and a sum, None for one operator; raises NotFlat for other functions."""
    operators = [op_name(binding.call) for binding in flat.bindings]
    if not operators or flat.results != [flat.bindings[-1].var]:
        raise NotFlat("it does not return what its last operator makes")
    if len(operators) == 1:
        return None
    if operators != ["relax.matmul", "relax.add"]:
        raise NotFlat("it has several operators")
    return flat.bindings[0].var


def _constant(value: ir.GenericConst, blob: Blob) -> dict[str, Any]:
    data = array_of(value).reshape(-1).view(np.uint8)
    return {
        "offset": blob.add(data),
        "nbytes": data.nbytes,
        "shape": list(static_shape(value)),
        "dtype": dtype_of(value),
    }
