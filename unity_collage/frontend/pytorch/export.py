"""Modules as exported programs."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from ...errors import ModelError, first_line


def exported(module: nn.Module, example_inputs: Any) -> ExportedProgram:
    """``module`` exported in evaluation mode; its own mode is restored afterwards. Raises ModelError."""
    if example_inputs is None:
        raise ModelError("a torch.nn.Module needs example inputs: compile(module, (tensor, ...))")
    args, kwargs = arguments_of(module, example_inputs)
    with _evaluating(module), torch.no_grad(), warnings.catch_warnings():
        # Recurrent layers assign to themselves when they run. Other warnings are of torch about its own parts.
        warnings.filterwarnings("ignore", message="The tensor attributes? ")
        warnings.filterwarnings("ignore", category=FutureWarning)
        try:
            return torch.export.export(_with_safe_names(module), args, kwargs)
        except Exception as error:  # torch raises whatever the module's code raises
            if _register_results(module, args, kwargs):
                return exported(module, example_inputs)
            raise ModelError(
                f"torch.export cannot take this module: {type(error).__name__}: {first_line(error)}"
            ) from error


class _Inner(nn.Module):
    """A module under another name, with its arguments."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.forward = functools.wraps(inner.forward)(lambda *args, **kwargs: inner(*args, **kwargs))


def _with_safe_names(module: nn.Module) -> nn.Module:
    """``module``, or a module around it if a part of it has the name of an attribute of torch's graph modules.

    Torch cannot take its own exported program apart then: a part called ``graph`` hides the graph.
    """
    names = {name.partition(".")[0] for name, _ in module.named_modules()}
    taken = set(dir(fx.GraphModule(nn.Module(), fx.Graph()))) - set(dir(nn.Module()))
    return _Inner(module).eval() if names & taken else module


def read(path: Path) -> ExportedProgram:
    """The program in a file of ``torch.export.save``; raises ModelError."""
    if not is_zipfile(path):  # torch would print tracebacks
        raise ModelError(f"{path} is not an exported program of PyTorch: torch.export.save writes one")
    try:
        return torch.export.load(path)
    except Exception as error:  # torch raises whatever its unpickling raises
        raise ModelError(f"{path} is not an exported program of PyTorch: {first_line(error)}") from error


def arguments_of(module: nn.Module, example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and the keyword arguments."""
    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,), {}
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    args = tuple(example_inputs)
    if args and isinstance(args[-1], Mapping) and _are_keywords(module, args):
        return args[:-1], dict(args[-1])
    return args, {}


def _are_keywords(module: nn.Module, args: tuple[Any, ...]) -> bool:
    """Whether the last argument names parameters that the others leave."""
    try:
        inspect.signature(module.forward).bind(*args[:-1], **args[-1])
    except TypeError:
        return False
    return True


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Inside the ``with`` block every part of the module is in evaluation mode; afterwards its old mode is restored."""
    before = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, training in before.items():
            part.training = training


def _register_results(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Register the dataclasses that the module returns with torch.export; returns whether there is a new one."""
    try:
        found = module(*args, **kwargs)
    except Exception:  # the module's own fault, which the export has reported
        return False
    kinds = {type(leaf) for leaf in pytree.tree_leaves(found) if dataclasses.is_dataclass(leaf)}
    for kind in kinds:
        torch.export.register_dataclass(kind)
    return bool(kinds)
