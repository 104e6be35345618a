"""GivenPlan: kernels that a user has chosen, by the names of their bindings, from a file of JSON.

A report, which ``compile --report plan.json`` writes, is such a file. The smallest file is

    {"main": {"kernels": [{"backend": "onednn", "bindings": ["lv", "lv1"]}]}}

A kernel may also have a ``label`` and ``threads``; without them any label, and the threads of our plan, are taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ..errors import CollageError, text_in


@dataclass(frozen=True, slots=True)
class GivenKernel:
    """One kernel of a given plan."""

    backend: str
    bindings: tuple[str, ...]
    """The names of its bindings in the normal form of the model, as ``explain`` shows them."""
    label: str = ""
    """The label of the kernel; empty: that of its backend."""
    threads: int | None = None
    """How many threads run it; None: as in our plan."""


GivenPlan = Mapping[str, tuple[GivenKernel, ...]]
"""Kernels by the name of their function."""


def read_json(path: Path) -> GivenPlan:
    """The plan in a file of JSON; raises CollageError with the place that is wrong."""
    expected = "a plan in JSON, as compile --report plan.json writes it, nor a partitioned module (.py)"
    text = text_in(path, expected)
    try:
        data = json.loads(text)
    except ValueError as error:
        raise CollageError(f"{path} is not {expected}: {error}") from error
    return given_plan(data, str(path))


def given_plan(data: Any, where: str) -> GivenPlan:
    """The plan that plain data stands for; ``where`` names it in messages."""
    if not isinstance(data, dict) or not data:
        raise CollageError(f"{where} is not a plan: it needs a function, such as main, with its kernels")
    return {
        name: tuple(_kernels(function, f"{where}, {name}"))
        for name, function in cast(dict[str, Any], data).items()
    }


def _kernels(function: Any, where: str) -> Iterator[GivenKernel]:
    kernels = cast(dict[str, Any], function).get("kernels", []) if isinstance(function, dict) else None
    if not isinstance(kernels, list):
        raise CollageError(f'{where}: there is no list of kernels, such as {{"kernels": []}}')
    for number, kernel in enumerate(cast(list[Any], kernels), 1):
        yield _kernel(kernel, f"{where}, kernel {number}")


def _kernel(data: Any, where: str) -> GivenKernel:
    fields = cast(dict[str, Any], data) if isinstance(data, dict) else {}
    backend, bindings = fields.get("backend"), fields.get("bindings")
    label, threads = fields.get("label", ""), fields.get("threads")
    if not isinstance(backend, str) or not backend:
        raise CollageError(f'{where}: it names no backend, such as "backend": "onednn"')
    if not _are_names(bindings):
        raise CollageError(f"{where}: its bindings are not a list of names")
    if not isinstance(label, str):
        raise CollageError(f"{where}: its label is not a text")
    if threads is not None and (type(threads) is not int or threads < 1):
        raise CollageError(f"{where}: its threads are not a positive number")
    return GivenKernel(backend, tuple(cast(list[str], bindings)), label, threads)


def _are_names(value: Any) -> bool:
    names = cast(list[Any], value) if isinstance(value, list) else []
    return bool(names) and all(isinstance(name, str) for name in names)
