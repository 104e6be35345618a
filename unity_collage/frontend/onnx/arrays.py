"""Tensors of ONNX files as numpy arrays; weights in files of their own are mapped, not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import tvm
import tvm_ffi
from onnx import external_data_helper, helper, numpy_helper
from tvm import ir, relax

from ...errors import ModelError, first_line
from .data_files import DataFiles, Loaded, left_in_file, loaded

STRINGS = "tensors of strings are not supported: cut the model behind what reads them"
"""Why strings are refused."""
_ALIGNMENT = 64
"""The alignment in bytes that TVM's kernels assume of tensors."""


class UnsupportedType(ModelError):
    """Programs have no tensors of an element type; the text says which, without the node."""


def array_of(tensor: onnx.TensorProto, files: DataFiles | None = None) -> np.ndarray:
    """The values of a tensor, which may be in ``files``. Raises ModelError."""
    try:
        if place := left_in_file(tensor, files):
            return loaded(
                place, np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)), tuple(tensor.dims)
            )
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            if files is None:
                raise ModelError(
                    "its data are in another file: give the path of the model, or load it with its data"
                )
            return _external(tensor, files.folder)
        return numpy_helper.to_array(tensor)
    except Exception as error:  # whatever protobuf, numpy and the file system raise
        raise ModelError(f"the tensor {tensor.name!r} cannot be read: {first_line(error)}") from error


def _external(tensor: onnx.TensorProto, folder: str) -> np.ndarray:
    """The values of a tensor in a file, mapped into memory: they are copied only on a write."""
    fields = {entry.key: entry.value for entry in tensor.external_data}
    path = (Path(folder) / fields["location"]).resolve()
    if not path.is_relative_to(Path(folder).resolve()):
        raise ModelError(f"its file {fields['location']} is outside of the model's folder")
    dtype, shape = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)), tuple(tensor.dims)
    offset = int(fields.get("offset", 0))
    if dtype.itemsize * int(np.prod(shape)) == 0 or _is_packed(tensor.data_type):
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        external_data_helper.load_external_data_for_tensor(copy, folder)
        copy.data_location = onnx.TensorProto.DEFAULT
        return numpy_helper.to_array(copy)
    return np.memmap(path, dtype, mode="c", offset=offset, shape=shape)


def _is_packed(data_type: int) -> bool:
    """Whether several elements share a byte."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(data_type)).name in {
        "int2",
        "uint2",
        "int4",
        "uint4",
        "float4_e2m1fn",
    }


def dtype_of(data_type: int) -> str:
    """The name of an ONNX element type in numpy and TVM, such as ``float32``; raises UnsupportedType for others."""
    if data_type == onnx.TensorProto.STRING:
        raise UnsupportedType(STRINGS)
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(data_type))
    except (KeyError, TypeError) as error:
        raise UnsupportedType(f"the element type {data_type} is not one of ONNX") from error
    if dtype.name not in DTYPES:
        raise UnsupportedType(f"tensors of {dtype.name} are not supported")
    return dtype.name


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy type of a name in TVM."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


DTYPES = frozenset(
    {"bool", "float16", "bfloat16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
"""The element types that programs compute with."""


def constant_of(array: np.ndarray) -> ir.GenericConst:
    """A Relax constant; arrays that are mapped, or read for it, stay where they are if they are aligned."""
    if array.dtype.name not in DTYPES:
        raise UnsupportedType(f"tensors of {array.dtype.name} are not supported")
    is_kept = isinstance(array, (np.memmap, Loaded)) and array.flags.c_contiguous
    if is_kept and array.ctypes.data % _ALIGNMENT == 0 and array.dtype.name != "bfloat16":  # DLPack of numpy
        mapped = tvm_ffi.from_dlpack(np.asarray(array))
        return ir.GenericConst(mapped, relax.TensorType(array.shape, array.dtype.name))
    return relax.const(tvm.runtime.tensor(np.ascontiguousarray(array).reshape(array.shape)))
