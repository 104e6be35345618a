"""Operators and whole models of PyTorch that a program calls. Tensors go there and back without copies, by DLPack.

PyTorch is imported when a program needs it, and not before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..ffi import tvm_ffi
from .torch_models import run
from .torch_tensors import exactly, exported, on_threads, own, places

_PREFIX = "unity_collage.torch."
NOTE = "collage_torch"
"""The attribute of an executable that names the operators which it calls."""
MISSING = "PyTorch is missing: pip install torch"
"""The reason where it is not installed."""
WHOLE_MODEL = "whole_model"
"""In place of an operator: a model that PyTorch runs operator by operator."""
_MISSING = rf"Cannot find function {re.escape(_PREFIX)}(\S+)"

_registered: set[str] = set()
"""The operators that programs of this process can call."""


def is_missing() -> bool:
    """Whether PyTorch is not installed; imports nothing."""
    return find_spec("torch") is None


def symbol_of(operator: str) -> str:
    """The symbol by which a program calls an operator, such as ``aten.histc.default``."""
    return _PREFIX + operator


def operators_among(symbols: Iterable[str]) -> list[str]:
    """The operators of PyTorch that are called by these symbols, each once."""
    return sorted({symbol.removeprefix(_PREFIX) for symbol in symbols if symbol.startswith(_PREFIX)})


def why_unavailable(operators: Sequence[str]) -> str | None:
    """Why a program that calls these operators cannot run here, or None; imports nothing."""
    if not operators or not is_missing():
        return None
    return f"it calls PyTorch for {', '.join(operators)}: pip install torch"


def register(operators: Iterable[str]) -> None:
    """Let programs of this process call these operators; imports PyTorch unless there are none.

    Raises RuntimeError if PyTorch is not installed, and for an operator that is not registered with it.
    """
    for name in operators:
        if name not in _registered:
            if reason := why_unavailable([name]):
                raise RuntimeError(reason)
            torch = import_module("torch")
            is_model = name == WHOLE_MODEL
            function = partial(run, torch) if is_model else partial(_called, torch, overload_of(torch, name))
            tvm_ffi.register_global_func(symbol_of(name), function, override=True)
            _registered.add(name)


def register_missing(error: str) -> bool:
    """Register the operator that is missing according to ``error``; returns whether it names one.

    Raises RuntimeError if PyTorch, or the operator, is not here.
    """
    named = re.search(_MISSING, error)
    if named is None:
        return False
    register([named[1]])
    return True


def overload_of(torch: Any, name: str) -> Any:
    """An operator of PyTorch by its namespace, name and overload; raises RuntimeError."""
    found = torch.ops
    try:
        for part in name.split(".", 2):
            found = getattr(found, part)
    except AttributeError:
        raise RuntimeError(
            f"PyTorch has no operator {name} in this process: import the package that registers it first"
        ) from None
    return found


def _called(torch: Any, overload: Any, text: str, *operands: Any) -> Any:
    """The results of a call: one tensor, or an array of several.

    ``text``: a template of all arguments of the schema, as JSON, and how many tensors are returned. ``operands``:
    the tensors of the template, and behind them the sizes in it, if it has any.
    """
    template, count = _read(str(text))
    sizes = operands[-1] if operands and isinstance(operands[-1], tvm_ffi.Shape) else ()
    tensors = [torch.from_dlpack(each) for each in operands[: len(operands) - bool(sizes)]]
    values = [filled(each, torch, tensors, sizes) for each in template]
    arguments = list(zip(overload._schema.arguments, values, strict=True))
    named = {argument.name: value for argument, value in arguments if argument.kwarg_only}
    # PyTorch's own threads would spin against those of the pool.
    with torch.no_grad(), exactly(torch), on_threads(torch, 1):
        found = overload(*(value for argument, value in arguments if not argument.kwarg_only), **named)
        results = own(torch, [each for each in leaves(found) if each is not None], places(tensors))
    if len(results) != count:
        raise RuntimeError(f"{overload} has returned {len(results)} tensors instead of {count}")
    made = [exported(each) for each in results]
    return made[0] if count == 1 else made


@cache
def _read(text: str) -> tuple[Any, int]:
    read = json.loads(text)
    return read["arguments"], read["results"]


def filled(template: Any, torch: Any, tensors: Sequence[Any], sizes: Sequence[int] = ()) -> Any:
    """An argument; one that is not a plain value is a dict of one item, from its kind to its content."""
    if isinstance(template, list):
        return [filled(each, torch, tensors, sizes) for each in template]
    if not isinstance(template, dict):
        return template
    ((kind, what),) = template.items()
    match kind:
        case "tensor":
            return tensors[what]
        case "view":  # a tensor, and methods with their arguments
            return viewed(filled(what[0], torch, tensors, sizes), what[1])
        case "complex tensor":
            return torch.view_as_complex(tensors[what])
        case "size":
            return int(sizes[what])
        case "complex":
            return complex(*what)
        case "device":
            return torch.device(what)
        case "torch":  # a dtype, a layout or a memory format
            return getattr(torch, what)
        case _:
            raise RuntimeError(f"an argument of the kind {kind!r} is not known: it is of a later version")


def viewed(tensor: Any, methods: Iterable[Sequence[Any]]) -> Any:
    """A view of a tensor, by methods that copy nothing: each is a name and its arguments."""
    for name, *arguments in methods:
        tensor = getattr(tensor, name)(*arguments)
    return tensor


def leaves(found: Any) -> list[Any]:
    """The results of an operator, with those in lists."""
    if isinstance(found, (list, tuple)):
        return [leaf for each in found for leaf in leaves(each)]
    return [found]
