"""The cases of the onnx package's backend suite, of all five kinds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

KINDS = ("node", "simple", "real", "pytorch-converted", "pytorch-operator")
_FOLDER = Path(onnx.__file__).parents[1]

DataSet = tuple[Sequence[Any], Sequence[Any]]
"""Inputs and expected results; values that are not tensors are lists or strings."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model with inputs and expected results; files are read when they are asked for."""

    name: str
    kind: str
    rtol: float
    atol: float
    test: Any

    def model(self) -> onnx.ModelProto:
        """The model."""
        if self.test.model is not None:
            return self.test.model
        if self.test.url is not None:
            return onnx.load(_FOLDER / self.test.url)
        return onnx.load(Path(self.test.model_dir) / "model.onnx")

    def data(self) -> Iterator[DataSet]:
        """All inputs with their expected results."""
        if self.test.data_sets is not None:
            for inputs, results in self.test.data_sets:
                yield [*map(_value, inputs)], [*map(_value, results)]
        elif self.test.url is not None:
            yield _ramp(self.model(), _FOLDER / self.test.url)
        else:
            for folder in sorted(Path(self.test.model_dir).glob("test_data_set_*")):
                yield tuple(_read(folder, what, self.model()) for what in ("input", "output"))  # type: ignore[misc]


def cases() -> list[Case]:
    """All cases, in the order of the suite."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's own casts overflow on purpose
        found = [test for kind in KINDS for test in load_model_tests(kind=kind)]
    return [Case(test.name, test.kind, test.rtol, test.atol, test) for test in found]


def operators(case: Case) -> list[str]:
    """The operators of a case: those of its name where it has several, else the one it has."""
    nodes = [node for node in case.model().graph.node if node.op_type != "Constant"]
    return sorted({f"{node.domain}.{node.op_type}".lstrip(".") for node in nodes})


def _value(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.generic, int, float)) else value


def _ramp(model: onnx.ModelProto, path: Path) -> DataSet:
    """Inputs as the suite's runner makes them for graphs without data: n numbers from 0 to 1."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = []
    for value in model.graph.input:
        if value.name not in weights:
            shape = [
                dim.dim_value if dim.HasField("dim_value") else 1 for dim in value.type.tensor_type.shape.dim
            ]
            count = int(np.prod(shape))
            inputs.append((np.arange(count).reshape(shape) / count).astype(np.float32))
    stored = sorted(path.parent.glob(f"{path.stem}_output_*.pb"))
    return inputs, [numpy_helper.to_array(onnx.load_tensor(file)) for file in stored]


def _read(folder: Path, what: str, model: onnx.ModelProto) -> list[Any]:
    infos = model.graph.input if what == "input" else model.graph.output
    found = []
    for number, file in enumerate(
        sorted(folder.glob(f"{what}_*.pb"), key=lambda f: int(f.stem.split("_")[1]))
    ):
        kind = infos[number].type.WhichOneof("value")
        proto = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}.get(
            kind, onnx.TensorProto
        )()
        proto.ParseFromString(file.read_bytes())
        if isinstance(proto, onnx.TensorProto):
            found.append(numpy_helper.to_array(proto))
        elif isinstance(proto, onnx.SequenceProto):
            found.append(numpy_helper.to_list(proto))
        else:
            found.append(numpy_helper.to_optional(proto))
    return found


def why_excluded(case: Case) -> str | None:
    """Why a case may be refused: what it needs is not meant to be supported. None for all others."""
    model = case.model()
    infos = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    domains = {node.domain for node in nodes} | {
        o.domain for o in model.opset_import if o.domain.endswith("training")
    }
    if other := sorted(domain for domain in domains if domain.startswith("ai.onnx.")):
        return other[0]
    kinds = {info.type.WhichOneof("value") for info in infos} - {"tensor_type", None}
    if kinds or any(node.op_type.startswith(("Sequence", "Optional")) for node in nodes):
        return "sequences and optional values"
    types = {info.type.tensor_type.elem_type for info in infos}
    types |= {tensor.data_type for tensor in model.graph.initializer}
    types |= {attribute.i for node in nodes for attribute in node.attribute if attribute.name in _TYPES}
    names = {onnx.TensorProto.DataType.Name(number) for number in types}
    if narrow := sorted(name for name in names if name.startswith(_NARROW)):
        return narrow[0]
    return "ImageDecoder" if any(node.op_type == "ImageDecoder" for node in nodes) else None


_TYPES = frozenset({"to", "dtype", "output_dtype"})
_NARROW = ("STRING", "COMPLEX", "FLOAT8", "FLOAT4", "FLOAT6")
