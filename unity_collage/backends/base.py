"""Backend: a toolchain that makes kernels, as one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx
from tvm.runtime import Module
from tvm.target import Target

from ..rules import Rule

Codegen = Callable[[Sequence[relax.Function], Mapping[str, Any], Mapping[Any, str]], list[Module]]
"""The ``relax.ext.<name>`` contract. Arguments: functions with attribute ``Codegen``, options, and the names that
constants may get. Result: runtime modules with a function for each ``global_symbol``."""


LowerToTIR = Callable[[relax.Function], tirx.PrimFunc | str]
"""A function of operators as one PrimFunc, which takes its parameters and then its results, or the reason why not."""


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
    lower_to_tir: LowerToTIR | None = None
    """Makes a PrimFunc of each kernel, which TVM compiles; ``codegen`` is None then. Large constants are the last
    parameters. A PrimFunc with ``tirx.is_scheduled`` keeps its loops, any other gets the schedules of this package. The
    attribute ``Composite`` of the function is the candidate's label, where it has one."""
    takes_free_sizes: bool = False
    """Whether it makes kernels with sizes that are known only when the program runs."""
    limits_threads: bool = False
    """Whether a kernel respects the attribute ``collage.threads`` of its function: the most threads that it may use."""
    merges: bool = False
    """Whether its code generator makes one kernel of a function with several ``Composite`` functions."""
    multiplies_as_written: bool = False
    """Whether its kernels do the multiplications of the contractions that they are given, or Winograd's: they do not
    multiply ``A (B C)`` for ``(A B) C``, use Fourier transforms, or compute equal operands once. Lower bounds of costs
    count multiplications only then (:mod:`unity_collage.cost.bounds`)."""
    widens_bytes: bool = False
    """Whether its own schedules multiply bytes as wider integers, at most two products in 32 bits: lower bounds count
    on no more. A tuned schedule may do better."""
    multiplies_bytes: Callable[[Target], bool] = lambda _target: False
    """Whether its products of bytes are exact and faster than those of floats on a target. If a backend's are, products
    of dequantised values are computed so (:mod:`unity_collage.passes.multiply_bytes`)."""
    why_inexact: Callable[[Sequence[relax.Call]], str | None] = lambda _calls: None
    """Why one kernel of these calls gives other last bits than the operators' own formulas in the type of the values,
    or None. It is called for values that are rounded to integers or compared later
    (:mod:`unity_collage.graph.steps`).
    """
    kinds: frozenset[str] = frozenset({"llvm"})
    """The kinds of targets that it makes kernels for, by TVM's names: ``llvm`` is a CPU, ``cuda`` an NVIDIA GPU."""
    processors: frozenset[str] = frozenset()
    """The processors that it makes kernels for, as Linux names them, such as ``x86_64``; empty: all. For a GPU this is
    its host."""
    by_default: bool = True
    """Whether a compile that names no backends uses it."""
    libraries: frozenset[str] = frozenset()
    """Those of our native libraries that its kernels call by name, where they are kernels of TVM."""
    has_own_threads: bool = False
    """Whether its library runs on threads of its own, which do not spin when a kernel has ended.

    The cost of changing between the pools is measured as a transition.
    """
    excludes: frozenset[str] = frozenset()
    """The names of backends that cannot be in one process with it. No plan has kernels of both; one of the two declares
    it."""
    takes_options: bool = False
    """Whether ``codegen`` gives its library the options that users write behind the name of the backend. They are its
    second argument, texts by name; ``lower_to_tir`` finds them in the attribute ``collage.options``."""
    options: tuple[tuple[str, str], ...] = ()
    """These options by name, sorted, in a backend that :func:`.registry.select` returns."""
    version: int = 1
    """The version of its rules and of the kernels that ``codegen`` makes. Raise it when they change, since measured
    costs hold for one version. ``fingerprint`` has the version of the library."""

    @property
    def is_fused_by_tvm(self) -> bool:
        """Whether TVM makes its kernels from the operators, without code of the backend."""
        return self.codegen is None and self.lower_to_tir is None
