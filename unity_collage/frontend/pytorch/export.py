"""Modules as exported programs."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from ...errors import ModelError, first_line


def exported(module: nn.Module, example_inputs: Any) -> ExportedProgram:
    """``module`` exported in evaluation mode; its own mode is restored afterwards. Raises ModelError.

    A module of TorchScript, such as :func:`torch.jit.load` returns, is run by its interpreter for that.
    """
    if example_inputs is None:
        raise ModelError("a torch.nn.Module needs example inputs: compile(module, (tensor, ...))")
    args, kwargs = arguments_of(module, example_inputs)
    with _evaluating(module), torch.no_grad(), warnings.catch_warnings():
        # Recurrent layers assign to themselves when they run. Other warnings are of torch about its own parts.
        warnings.filterwarnings("ignore", message="The tensor attributes? ")
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", message="A model attribute .* requires gradient")
        try:
            if isinstance(module, torch.jit.ScriptModule):
                return torch.export.export(_Interpreted(module), args, kwargs, strict=False)
            return torch.export.export(_with_safe_names(module), args, kwargs)
        except Exception as error:  # torch raises whatever the module's code raises
            if _register_results(module, args, kwargs):
                return exported(module, example_inputs)
            raise ModelError(f"torch.export cannot take this module: {_reason(error)}") from error


def exported_script(module: torch.jit.ScriptModule, shapes: Mapping[str, Any]) -> ExportedProgram:
    """A module of TorchScript with the ``shapes`` of its inputs, by their names.

    Inputs are float32, or all int64 if the module takes no float32. Raises ModelError.
    """
    needed = [arg.name for arg in _method(module).schema.arguments[1:] if not arg.has_default_value()]
    given = {name: shape for name, shape in shapes.items() if _is_shape(shape)}
    if missing := [name for name in needed if name not in given]:
        raise ModelError(
            f"a module of TorchScript has no sizes, and there is no shape for {', '.join(missing)}: give that of each "
            f"input, such as --shape {missing[0]}=1,3,224,224, or in Python example inputs: compile(module, (x,))"
        )
    inputs = {name: torch.zeros(tuple(given[name])) for name in needed}
    try:
        return exported(module, inputs)
    except ModelError:
        if not needed:
            raise
        try:
            return exported(module, {name: value.long() for name, value in inputs.items()})
        except ModelError:
            pass
        raise


def _is_shape(value: object) -> bool:
    return isinstance(value, (tuple, list)) and all(isinstance(size, int) and size >= 0 for size in value)


class _Inner(nn.Module):
    """A module under another name, with its arguments."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.forward = functools.wraps(inner.forward)(lambda *args, **kwargs: inner(*args, **kwargs))


def _reason(error: Exception) -> str:
    """Why an export failed, in one line.

    The interpreter of TorchScript shows the code of its program first, with a mark below the last call, and the error
    then. The error may have no text.
    """
    if "TorchScript interpreter" not in first_line(error):
        return f"{type(error).__name__}: {first_line(error)}"
    lines = str(error).splitlines()
    call = next(
        (line.strip() for line, mark in reversed([*pairwise(lines)]) if mark.endswith("<--- HERE")), ""
    )
    causes = (line.strip() for line in reversed(lines) if line.startswith("RuntimeError: "))
    cause = next(causes, type(error).__name__)
    return f"{cause.rstrip(':')} in the line {call!r} of its program"


def _method(module: torch.jit.ScriptModule) -> Any:
    """The compiled method; ``module.forward`` of a module that was not loaded from a file may be its Python code."""
    return module._c._get_method("forward")


class _Interpreted(nn.Module):
    """A module of TorchScript that torch.export sees as a function: it refuses it as a part of a module.

    Its weights become constants of the exported program.
    """

    def __init__(self, module: torch.jit.ScriptModule) -> None:
        super().__init__()
        run = _method(module)

        def forward(*args: Any, **kwargs: Any) -> Any:
            return run(*args, **kwargs)

        kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
        forward.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
            [
                inspect.Parameter(
                    arg.name, kind, default=arg.default_value if arg.has_default_value() else empty
                )
                for arg in run.schema.arguments[1:]
            ]
        )
        self.forward = forward


def _with_safe_names(module: nn.Module) -> nn.Module:
    """``module``, or a module around it if a part of it has the name of an attribute of torch's graph modules.

    Torch cannot take its own exported program apart then: a part called ``graph`` hides the graph.
    """
    names = {name.partition(".")[0] for name, _ in module.named_modules()}
    taken = set(dir(fx.GraphModule(nn.Module(), fx.Graph()))) - set(dir(nn.Module()))
    return _Inner(module).eval() if names & taken else module


def read(path: Path) -> ExportedProgram | torch.jit.ScriptModule:
    """The program in a file of ``torch.export.save`` or ``torch.jit.save``; raises ModelError."""
    if not is_zipfile(path):  # torch would print tracebacks
        raise ModelError(f"{path} is not an exported program of PyTorch: torch.export.save writes one")
    try:
        if path.suffix == ".pt2":
            return torch.export.load(path)
        with ZipFile(path) as file:
            names = file.namelist()
        if any(name.endswith("/constants.pkl") for name in names):
            return torch.jit.load(path, map_location="cpu")
        if any(name.count("/") == 1 and name.endswith("/data.pkl") for name in names):
            raise ModelError(
                f"{path} holds objects that torch.save wrote, such as weights, and no program: load them in Python and "
                "call compile(module, (tensor, ...)), or write the module with torch.export.save"
            )
        raise ModelError(f"{path} is no module of TorchScript: a program of torch.export.save ends in .pt2")
    except ModelError:
        raise
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
    before = {part: part.training for part in module.modules() if hasattr(part, "training")}
    if before:  # a frozen module of TorchScript has no mode
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
