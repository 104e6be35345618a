"""Imports a model: an IRModule, an ONNX model, a PyTorch module or exported program, or the path of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from tvm import relax
from tvm.ir import IRModule

from ..defaults import FILES_OF_TORCH
from ..errors import ModelError, is_file
from ..runtime.custom_op_libraries import CustomOpLibrary
from ..runtime.custom_ops import CustomOps
from ..sessions import WholeModel
from ..to_onnx import exported
from .eager import EagerModel
from .onnx.elsewhere import Elsewhere
from .onnx.importer import imported as imported_onnx
from .onnx.inputs import names_in
from .onnx.names import safe
from .onnx.original import original
from .onnx.reading import OnnxFile, read_onnx
from .opaque import remarks_of
from .sizes import Samples, Shapes, dimensions_of, split, with_fixed_sizes

Model = Any
"""An IRModule; an ``onnx.ModelProto``; a ``torch.nn.Module`` with example inputs; a ``torch.export.ExportedProgram``;
the path of an ONNX file (``.onnx``), of an exported program (``.pt2``), or of a module of TorchScript (``.pt``)."""


@dataclass(frozen=True, slots=True)
class LastResorts:
    """What computes operators that are not converted."""

    custom_ops: CustomOps = field(default_factory=dict[str, Callable[..., Any]])
    """Python functions for operators of an ONNX model."""
    onnxruntime: bool = False
    """Whether ONNX Runtime computes other operators of an ONNX model."""
    torch: bool = False
    """Whether PyTorch computes the unconverted operators of a PyTorch model, or may compute all of it."""
    libraries: Sequence[CustomOpLibrary] = ()
    """Those with operators of an ONNX model, which ONNX Runtime registers."""

    def of_onnx(self) -> Elsewhere | None:
        """What computes the unconverted nodes of one ONNX model."""
        if not self.custom_ops and not self.onnxruntime:
            return None
        return Elsewhere(self.custom_ops, self.onnxruntime, self.libraries)


@dataclass(frozen=True, slots=True)
class Imported:
    """A model as a module."""

    mod: IRModule
    inputs: tuple[str, ...]
    """The names of its inputs in the model, in the order of the parameters of ``main``."""
    outputs: tuple[str, ...] = ()
    """The names of its results in the model, if they have names."""
    samples: Mapping[str, Sequence[int] | Mapping[int, float]] = field(default_factory=dict)
    """Sample sizes that were given for symbolic sizes of ``main``, by their names, with weights if there are some."""
    whole: WholeModel | None = field(default=None, compare=False)
    """The model for inference runtimes; None if weights of it were bound."""
    at: Callable[[Mapping[str, int]], Imported] | None = field(default=None, compare=False)
    """Imports the model with these symbolic sizes of ``main`` fixed; None: only its module is known."""
    eager: EagerModel | None = field(default=None, compare=False)
    """A model of PyTorch as PyTorch runs it, if that may compute it; None if weights of it were bound."""


def import_model(
    model: Model,
    example_inputs: Any = None,
    shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
    last_resorts: LastResorts | None = None,
) -> Imported:
    """The module of a model; raises ModelError with the reason in one line.

    ``shapes`` fixes sizes that the model leaves open: several numbers are the shape of the input with this name, one
    number is the size of the dimension with this name. Several numbers for a dimension, or a range, are samples: it
    stays open, and ``compile`` makes plans for them. ``dims`` names dimensions only. ``example_inputs`` are the
    arguments that a ``torch.nn.Module`` is exported with. A module of TorchScript may have ``shapes`` instead.
    ``last_resorts`` compute operators that are not converted; without them such a model is refused.
    """
    last_resorts = last_resorts or LastResorts()
    if isinstance(model, (str, Path)):
        model = read_model(Path(model))
    if isinstance(model, onnx.ModelProto):
        model = OnnxFile(model)
    if isinstance(model, OnnxFile):
        return _of_onnx(model, shapes, dims, last_resorts)
    if isinstance(model, IRModule):
        _check_main(model)
        names = tuple(param.name for param in model["main"].params)
        fixed, samples = split(shapes, names, dimensions_of(model))
        return _of_module(with_fixed_sizes(model, fixed, dims or {}), names, (), samples)
    if is_of_torch(model):
        from .pytorch import imported as imported_torch  # needs PyTorch

        mod, inputs, outputs, eager = imported_torch(model, example_inputs, last_resorts.torch, shapes)
        fixed, samples = split(shapes, inputs, dimensions_of(mod))
        found = _of_module(with_fixed_sizes(mod, fixed, dims or {}), inputs, outputs, samples)
        return replace(found, eager=eager) if last_resorts.torch else found
    raise ModelError(
        "a model is an IRModule, an onnx.ModelProto, a torch.nn.Module, a torch.export.ExportedProgram or a path, "
        f"not a {type(model).__name__}"
    )


def _of_onnx(
    model: OnnxFile,
    shapes: Shapes | None,
    dims: Mapping[str, int] | None,
    last_resorts: LastResorts,
) -> Imported:
    """An ONNX model.

    With more sizes fixed it is imported again, so that values computed from shapes become constants.
    """
    inputs, dimensions = names_in(model.model.graph)
    fixed, samples = split(shapes, inputs, dimensions)
    names = {safe(name): name for name in dimensions}
    elsewhere = last_resorts.of_onnx

    def at(sizes: Mapping[str, int]) -> Imported:
        more = {names.get(name, name): size for name, size in sizes.items()}
        return Imported(
            *imported_onnx(model.model, model.files, fixed, {**(dims or {}), **more}, elsewhere())
        )

    mod, names_of_inputs, outputs = imported_onnx(model.model, model.files, fixed, dims, elsewhere())
    by_symbol = {safe(name): sizes for name, sizes in samples.items()}
    params = dict(zip(names_of_inputs, mod["main"].params, strict=True))
    libraries = last_resorts.libraries if remarks_of(mod) else ()
    whole = WholeModel(
        partial(original, model.model, model.files, params), names_of_inputs, outputs, libraries
    )
    return Imported(mod, names_of_inputs, outputs, by_symbol, whole, at)


def _of_module(
    mod: IRModule, inputs: tuple[str, ...], outputs: tuple[str, ...], samples: Samples
) -> Imported:
    """A module that is given. Fixing more of its sizes changes the types alone: nothing is imported again."""

    def at(sizes: Mapping[str, int]) -> Imported:
        return Imported(with_fixed_sizes(mod, {}, sizes), inputs, outputs)

    # A model's own names need not be unique: PyTorch names a result that is returned twice, or an input, once.
    result = mod["main"].ret_ty
    takes = _numbered("input", len(inputs))
    gives = _numbered("result", len(result.fields) if isinstance(result, relax.TupleType) else 1)
    whole = WholeModel(partial(_written, mod, takes, gives), takes, gives)
    return Imported(mod, inputs, outputs, samples, whole, at)


def _written(mod: IRModule, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """A module as an ONNX model; raises NotExported."""
    return exported(mod["main"], mod, inputs, outputs).SerializeToString()


def _numbered(what: str, count: int) -> tuple[str, ...]:
    return tuple(f"{what}_{number}" for number in range(count))


def read_model(path: Path) -> Any:
    """The model in a file; raises ModelError with the reason in one line."""
    if path.suffix in FILES_OF_TORCH and is_file(path):
        from .pytorch import read_file

        return read_file(path)
    if path.suffix == ".so" and is_file(path):
        raise ModelError(
            f"{path} is not a model but a saved program: name the .onnx or .pt2 file that it was made of"
        )
    return read_onnx(path, whole=False)


def _check_main(mod: IRModule) -> None:
    if not any(gvar.name_hint == "main" for gvar in mod.get_global_vars()):
        raise ModelError("the module has no function named main")


def is_of_torch(model: Any) -> bool:
    """Whether ``model`` is an object of PyTorch, or of a class derived from one of its classes; does not import it."""
    return any(base.__module__.partition(".")[0] == "torch" for base in type(model).__mro__)
