from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from tvm.ir import IRModule

class OnnxOpConverter: ...

def _get_convert_map() -> dict[str, type[OnnxOpConverter]]: ...
def from_onnx(
    model: onnx.ModelProto,
    shape_dict: Mapping[str, Sequence[Any]] | None = None,
    dtype_dict: str | Mapping[str, str] | None = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
) -> IRModule: ...
