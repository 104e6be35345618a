"""A built kernel with everything that timing it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.target import Target

from ..annotations import LIFTED
from ..backends.registry import get
from ..database.rows import FailureKind
from ..graph.shapes import nbytes_of
from ..runtime.vendors import VENDORS
from . import kernel_library
from .kernels import LoweredKernel, NoKernel, make_kernel
from .refusal import Refusal, Refused, refusal_of

_CONSTANTS_HELD = 3
"""How many copies of its constants a kernel holds: as they were given, packed by the library, and the caller's."""


@dataclass
class BuiltKernel:
    """A built kernel, and its outputs for each trial."""

    kernel: Any
    constants: list[tvm.runtime.Tensor]
    outputs: list[Any] = field(default_factory=list)
    twin: BuiltKernel | None = None
    """The same kernel with constants of its own."""


def built_kernel(
    func: relax.Function,
    inputs: Sequence[np.ndarray],
    asked: Mapping[str, Any],
    target: Target,
    prepare: Callable[[Any], None],
    lowered: LoweredKernel | None = None,
) -> BuiltKernel:
    """The kernel, built here or read from the ``library`` that another machine sent; raises Refused.

    ``prepare`` is called with its module before the first run. ``lowered``: the
    kernel's loops, where they are known.
    """
    try:
        if "library" in asked:
            made = kernel_library.read(asked["backend"], asked["library"], asked["constants"])
        else:
            made = make_kernel(func, inputs, get(asked["backend"]), target, only_here=True, lowered=lowered)
        prepare(made.module)
        return BuiltKernel(made.function, made.constants)
    except NoKernel as error:
        raise Refused(Refusal(str(error))) from error
    except Exception as error:  # a foreign compiler failed: its error becomes the reason
        raise Refused(refusal_of(error, FailureKind.COMPILE_ERROR)) from error


def is_compiled_by_tvm(asked: Mapping[str, Any]) -> bool:
    """Whether TVM compiles the kernel here."""
    return "library" not in asked and get(asked["backend"]).codegen is None


def can_have_twin(func: relax.Function, asked: Mapping[str, Any]) -> bool:
    """Whether a second kernel can be made that shares everything with the first except the constants."""
    return not int(func.attrs[LIFTED]) or get(asked["backend"]).codegen is None or asked["backend"] in VENDORS


def with_twin(
    made: BuiltKernel,
    func: relax.Function,
    inputs: Sequence[np.ndarray],
    asked: Mapping[str, Any],
    target: Target,
    prepare: Callable[[Any], None],
) -> BuiltKernel:
    """``made`` with a twin; raises Refused.

    Kernels of TVM are called with their constants, which are copied. A library packs them into its kernel, so that is
    made again: the library's code is the same. A kernel without constants is its own twin.
    """
    if not int(func.attrs[LIFTED]):
        return replace(made, twin=made)
    if get(asked["backend"]).codegen is None:
        copies = [tvm.runtime.tensor(constant.numpy()) for constant in made.constants]
        return replace(made, twin=BuiltKernel(made.kernel, copies))
    return replace(made, twin=built_kernel(func, inputs, asked, target, prepare))


def held_bytes(func: relax.Function) -> int:
    """About how many bytes a runner of a kernel for ``func`` holds."""
    lifted = len(func.params) - int(func.attrs[LIFTED])
    constants = sum(nbytes_of(param) for param in func.params[lifted:])
    return _CONSTANTS_HELD * constants + sum(nbytes_of(param) for param in func.params[:lifted])
