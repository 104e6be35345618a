"""Random inputs for a kernel: of the right dtype, and of values that the operators are made for."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  registers bfloat16 with numpy
import numpy as np
from tvm import ir, relax

_POSITIVE_OPS = frozenset(
    {"relax.log", "relax.sqrt", "relax.rsqrt", "relax.power", "relax.log2", "relax.log10"}
)
_INDEX_ARGS = {
    "relax.take": (1, 0),
    "relax.gather_elements": (1, 0),
    "relax.gather_nd": (1, 0),
}
"""Operator -> (position of the index argument, position of the indexed one)."""


def random_inputs(func: relax.Function, seed: int = 0) -> list[np.ndarray]:
    """One array for each parameter of ``func``: static shapes, in order, equal for equal ``seed``."""
    rng = np.random.default_rng(seed)
    bounds = _index_bounds(func)
    positive = any(call.op.name in _POSITIVE_OPS for call in _calls(func))
    variances = _variances(func)
    arrays: list[np.ndarray] = []
    for param in func.params:
        shape = tuple(int(extent) for extent in param.ty.shape.values)
        dtype = np.dtype(str(param.ty.dtype))
        if dtype == np.bool_:
            arrays.append(rng.random(shape) < 0.5)
        elif np.issubdtype(dtype, np.integer):
            arrays.append(rng.integers(0, bounds.get(param, 10), shape).astype(dtype))
        else:
            values = rng.standard_normal(shape, dtype=np.float32)
            if positive or param in variances:
                values = np.abs(values) + np.float32(0.1)
            arrays.append(values.astype(dtype))
    return arrays


def _calls(func: relax.Function) -> list[relax.Call]:
    values = [binding.value for block in func.body.blocks for binding in block.bindings]
    return [v for v in values if isinstance(v, relax.Call) and isinstance(v.op, ir.Op)]


def _index_bounds(func: relax.Function) -> dict[relax.Var, int]:
    """For integer parameters that index something, how many there are to choose from."""
    bounds: dict[relax.Var, int] = {}
    for call in _calls(func):
        if call.op.name not in _INDEX_ARGS:
            continue
        position, data = _INDEX_ARGS[call.op.name]
        axis = getattr(call.attrs, "axis", None)
        extents = [int(extent) for extent in call.args[data].ty.shape.values]
        bound = min(extents) if axis is None else extents[int(axis)]
        index = call.args[position]
        if isinstance(index, relax.Var):
            bounds[index] = min(bound, bounds.get(index, bound))
    return bounds


def _variances(func: relax.Function) -> set[relax.Var]:
    """Parameters that a batch norm takes as variance."""
    norms = [call for call in _calls(func) if call.op.name == "relax.nn.batch_norm"]
    return {call.args[4] for call in norms if isinstance(call.args[4], relax.Var)}
