"""Backend: a toolchain that makes kernels, as one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.runtime import Module
from tvm.target import Target

from ..rules import Rule

Codegen = Callable[[Sequence[relax.Function], Mapping[str, Any], Mapping[Any, str]], list[Module]]
"""The ``relax.ext.<name>`` contract. Arguments: functions with attribute ``Codegen``, options, and the names that
constants may get. Result: runtime modules with a function for each ``global_symbol``."""


@dataclass(frozen=True, slots=True)
class Backend:
    """Which kernels a toolchain can make, and how it makes them. Their measured cost decides whether they are used."""

    name: str
    rule: Callable[[Target], Rule]
    """The rule that proposes its kernels on a target."""
    why_unavailable: Callable[[], str | None]
    """Why it cannot run on this machine, or None. It must not load the library."""
    fingerprint: Callable[[], str]
    """Everything about the library that can change a cost: name, version, instruction set. It is part of every cost key
    and is called only if the backend is available."""
    codegen: Codegen | None = None
    """Makes the kernels; if None, they stay in the IR, for TVM."""
    limits_threads: bool = False
    """Whether a kernel respects the attribute ``collage.threads`` of its function: the most threads that it may use."""
    merges: bool = False
    """Whether its code generator makes one kernel of a function with several ``Composite`` functions."""
    kinds: frozenset[str] = frozenset({"llvm"})
    """The kinds of targets that it makes kernels for, by TVM's names: ``llvm`` is a CPU, ``cuda`` an NVIDIA GPU."""
    version: int = 1
    """The version of its rules and of the kernels that ``codegen`` makes. Raise it when they change, since measured
    costs hold for one version. ``fingerprint`` has the version of the library."""
