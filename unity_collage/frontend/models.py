"""Imports a model: an IRModule, an ONNX model, a PyTorch module or exported program, or the path of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from tvm.ir import IRModule

from ..errors import ModelError
from .onnx.importer import imported as imported_onnx
from .onnx.reading import OnnxFile, read_onnx
from .sizes import Shapes, with_fixed_sizes

Model = Any
"""An IRModule; an ``onnx.ModelProto``; a ``torch.nn.Module`` with example inputs; a ``torch.export.ExportedProgram``;
the path of an ONNX file (``.onnx``) or of an exported program (``.pt2``)."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A model as a module."""

    mod: IRModule
    inputs: tuple[str, ...]
    """The names of its inputs in the model, in the order of the parameters of ``main``."""
    outputs: tuple[str, ...] = ()
    """The names of its results in the model, if they have names."""


def import_model(
    model: Model,
    example_inputs: Any = None,
    shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
) -> Imported:
    """The module of a model; raises ModelError with the reason in one line.

    ``shapes`` fixes sizes that the model leaves open: several numbers are the shape of the input with this name, one
    number is the size of the dimension with this name. ``dims`` names dimensions only. ``example_inputs`` are the
    arguments that a ``torch.nn.Module`` is exported with.
    """
    if isinstance(model, (str, Path)):
        model = read_model(Path(model))
    if isinstance(model, onnx.ModelProto):
        model = OnnxFile(model)
    if isinstance(model, OnnxFile):
        return Imported(*imported_onnx(model.model, model.folder, shapes, dims))
    if isinstance(model, IRModule):
        _check_main(model)
        names = tuple(param.name for param in model["main"].params)
        return Imported(with_fixed_sizes(model, shapes or {}, dims or {}), names)
    if is_of_torch(model):
        from .pytorch import imported as imported_torch  # needs PyTorch, which who brings such a model has

        mod, inputs, outputs = imported_torch(model, example_inputs)
        return Imported(with_fixed_sizes(mod, shapes or {}, dims or {}), inputs, outputs)
    raise ModelError(
        "a model is an IRModule, an onnx.ModelProto, a torch.nn.Module, a torch.export.ExportedProgram or a path, "
        f"not a {type(model).__name__}"
    )


def read_model(path: Path) -> Any:
    """The model in a file; raises ModelError with the reason in one line."""
    if path.suffix == ".pt2" and path.is_file():
        from .pytorch import read_pt2

        return read_pt2(path)
    return read_onnx(path)


def _check_main(mod: IRModule) -> None:
    if not any(gvar.name_hint == "main" for gvar in mod.get_global_vars()):
        raise ModelError("the module has no function named main")


def is_of_torch(model: Any) -> bool:
    """Whether ``model`` is an object of PyTorch, or of a class derived from one of its classes; does not import it."""
    return any(base.__module__.partition(".")[0] == "torch" for base in type(model).__mro__)
