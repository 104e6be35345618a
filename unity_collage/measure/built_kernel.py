"""A kernel that is built, and what is needed to time it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.target import Target

from ..annotations import LIFTED
from ..backends.registry import get
from ..database.rows import FailureKind
from ..graph.shapes import nbytes_of
from . import kernel_library
from .kernels import NoKernel, make_kernel
from .refusal import Refusal, Refused, refusal_of

_CONSTANTS_HELD = 3
"""How many copies of its constants a kernel holds: as they were given, packed by the library, and the caller's."""


@dataclass
class BuiltKernel:
    """A built kernel, and its outputs for each trial."""

    kernel: Any
    constants: list[tvm.runtime.Tensor]
    outputs: list[Any] = field(default_factory=list)


def built_kernel(
    func: relax.Function,
    inputs: Sequence[np.ndarray],
    asked: Mapping[str, Any],
    target: Target,
    prepare: Callable[[Any], None],
) -> BuiltKernel:
    """The kernel, built here or read from the ``library`` that another machine sent; raises Refused.

    ``prepare`` is called with its module, and does what else has to be done before the first run.
    """
    try:
        if "library" in asked:
            made = kernel_library.read(asked["backend"], asked["library"], asked["constants"])
        else:
            made = make_kernel(func, inputs, get(asked["backend"]), target, only_here=True)
        prepare(made.module)
        return BuiltKernel(made.function, made.constants)
    except NoKernel as error:
        raise Refused(Refusal(str(error))) from error
    except Exception as error:  # a foreign compiler failed: its error becomes the reason
        raise Refused(refusal_of(error, FailureKind.COMPILE_ERROR)) from error


def held_bytes(func: relax.Function) -> int:
    """About how many bytes a runner of a kernel for ``func`` holds."""
    lifted = len(func.params) - int(func.attrs[LIFTED])
    constants = sum(nbytes_of(param) for param in func.params[lifted:])
    return _CONSTANTS_HELD * constants + sum(nbytes_of(param) for param in func.params[:lifted])
