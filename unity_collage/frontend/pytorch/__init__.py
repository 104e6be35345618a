"""Imports PyTorch models. This file does not import torch: only an object of torch, or a file of one, needs it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvm.ir import IRModule

from ...errors import ModelError
from ..eager import EagerModel


def imported(
    model: Any,
    example_inputs: Any = None,
    asks_torch: bool = False,
    shapes: Mapping[str, Any] | None = None,
) -> tuple[IRModule, tuple[str, ...], tuple[str, ...], EagerModel]:
    """The module of a ``torch.nn.Module`` or ``torch.export.ExportedProgram``, the names of its inputs and outputs, and
    the model as PyTorch runs it.

    ``example_inputs`` are what a module is called with: one tensor, a tuple of positional arguments, or a dict of
    keyword arguments. A tuple may end with such a dict. Inputs of the program are the tensors among them, flattened in
    order. A module of TorchScript may have ``shapes`` of all its inputs instead. ``asks_torch``: let PyTorch compute
    operators that are not converted, when the program runs. Raises ModelError with the reason in one line.
    """
    from torch import jit, nn
    from torch.export import ExportedProgram

    from .export import exported, exported_script
    from .importer import imported as program_imported

    if isinstance(model, ExportedProgram):
        if example_inputs is not None:
            raise ModelError("an ExportedProgram has its inputs already: leave out example_inputs")
        return program_imported(model, asks_torch)
    if isinstance(model, jit.ScriptModule) and example_inputs is None:
        return program_imported(exported_script(model, shapes or {}), asks_torch)
    if isinstance(model, nn.Module):
        return program_imported(exported(model, example_inputs), asks_torch)
    raise ModelError(
        f"a model of PyTorch is a torch.nn.Module or a torch.export.ExportedProgram, not a {type(model).__name__}"
    )


def read_file(path: Path) -> Any:
    """The exported program, or module of TorchScript, in a file; raises ModelError with the reason in one line."""
    try:
        from .export import read
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModelError(f"{path} is a file of PyTorch, which is not installed: pip install torch") from error
    return read(path)
