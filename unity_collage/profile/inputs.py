"""The inputs that whole programs run on."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from ..measure.inputs import random_inputs, why_not_drawn


def why_not_runnable(mod: IRModule) -> str | None:
    """Why ``main`` cannot be run on dummy inputs, or None."""
    if not any(gvar.name_hint == "main" for gvar in mod.get_global_vars()):
        return "the module has no function named main"
    main = mod["main"]
    if not isinstance(main, relax.Function):
        return "main is not a function of Relax"
    return next((reason for param in main.params if (reason := why_not_drawn(param))), None)


def dummy_inputs(mod: IRModule) -> list[np.ndarray]:
    """Random inputs for ``main``; integers are 0, since they may be indexes."""
    return [
        value if value.dtype.kind == "f" else np.zeros_like(value) for value in random_inputs(mod["main"])
    ]
