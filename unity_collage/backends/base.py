"""Backend: one toolchain that can make kernels, as one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.runtime import Module
from tvm.target import Target

from ..rules import Rule

Codegen = Callable[[Sequence[relax.Function], Mapping[str, Any], Mapping[Any, str]], list[Module]]
"""The ``relax.ext.<name>`` contract: functions with attribute ``Codegen``, options and the names that constants
may get, to runtime modules that hold a function for each ``global_symbol``."""


@dataclass(frozen=True, slots=True)
class Backend:
    """What a toolchain takes, and how to make kernels with it. Cost, not taste, decides the rest."""

    name: str
    rule: Callable[[Target], Rule]
    """What could be one kernel of it on a target."""
    why_unavailable: Callable[[], str | None]
    """Why it cannot run on this machine, or None; answers without loading the library."""
    fingerprint: Callable[[], str]
    """All of the library that can change a cost: name, version, instruction set. Part of every cost key;
    asked only where the backend is available."""
    codegen: Codegen | None = None
    """Makes the kernels; None: they stay in the IR, for TVM."""
    limits_threads: bool = False
    """Whether a kernel runs on as many threads at most as the attribute ``collage.threads`` of its function says."""
    merges: bool = False
    """Whether its code generator makes one kernel of a function with several ``Composite`` functions."""
    version: int = 1
    """Of its rules and of the kernels that ``codegen`` makes; raise it when they change, since measured costs hold for
    one version. ``fingerprint`` has the library's own version."""
