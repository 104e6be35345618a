"""What whole programs run on."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from ..measure.inputs import random_inputs
from ..rules.base import why_not_static


def why_not_runnable(mod: IRModule) -> str | None:
    """Why ``main`` cannot be run on inputs that are made up, or None."""
    if not any(gvar.name_hint == "main" for gvar in mod.get_global_vars()):
        return "the module has no function named main"
    main = mod["main"]
    if not isinstance(main, relax.Function):
        return "main is not a function of Relax"
    return next((reason for param in main.params if (reason := why_not_static(param))), None)


def dummy_inputs(mod: IRModule) -> list[np.ndarray]:
    """Random ones for ``main``; integers, which may be indices, are 0."""
    return [
        value if value.dtype.kind == "f" else np.zeros_like(value) for value in random_inputs(mod["main"])
    ]
