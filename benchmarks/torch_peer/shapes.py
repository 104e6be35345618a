"""Views, indexing and other operators of ONNX that move values, by torch functions."""

from __future__ import annotations

import math

import torch  # pyright: ignore[reportMissingImports]
from onnx import numpy_helper
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

from .call import Call, Value, dtype_of


def constant(call: Call) -> Value:
    """Raises ModelError for text and for sparse tensors."""
    attributes = call.attributes
    if "value" in attributes:
        return torch.from_numpy(numpy_helper.to_array(attributes["value"]).copy())
    for name, dtype in _NUMBERS.items():
        if name in attributes:
            return torch.tensor(attributes[name], dtype=dtype)
    raise call.lacks(f"of {', '.join(attributes)}")


_NUMBERS = {
    "value_float": torch.float32,
    "value_floats": torch.float32,
    "value_int": torch.int64,
    "value_ints": torch.int64,
}


def constant_of_shape(call: Call, _shape: Value) -> Value:
    value = call.attributes.get("value")
    fill = torch.zeros(1) if value is None else torch.from_numpy(numpy_helper.to_array(value).copy())
    return torch.full(call.ints(0) or [], fill.item(), dtype=fill.dtype)


def shape(call: Call, _x: Value) -> Value:
    start, end = call.attributes.get("start", 0), call.attributes.get("end")
    return torch.tensor(call.shape()[start:end], dtype=torch.int64)


def cast(call: Call, x: Value) -> Value:
    return x.to(dtype_of(call.attributes["to"]))


def reshape(call: Call, x: Value, _shape: Value) -> Value:
    extents = call.ints(1) or []
    if not call.attributes.get("allowzero", 0):
        extents = [extent or call.shape()[axis] for axis, extent in enumerate(extents)]
    return x.reshape(extents)


def flatten(call: Call, x: Value) -> Value:
    extents, axis = call.shape(), call.attributes.get("axis", 1)
    if axis < 0:
        axis += len(extents)
    return x.reshape(math.prod(extents[:axis]), math.prod(extents[axis:]))


def squeeze(call: Call, x: Value, _axes: Value = None) -> Value:
    axes = call.ints(1)
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def unsqueeze(call: Call, x: Value, _axes: Value) -> Value:
    axes = call.ints(1) or []
    rank = len(call.shape()) + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def transpose(call: Call, x: Value) -> Value:
    """Matrices are transposed in a step of their own: [0, 2, 3, 1] -> [0, 2, 1, 3], then the last two axes.

    So people write attention, and torch's compiler looks for the second step alone: it takes any permutation for it.
    """
    rank = len(call.shape())
    axes = call.attributes.get("perm", list(reversed(range(rank))))
    if rank < 3 or axes[-2] != rank - 1:
        return x.permute(axes)
    x = x.permute([*axes[:-2], axes[-1], axes[-2]])
    return x.transpose(-2, -1)


def expand(call: Call, x: Value, _shape: Value) -> Value:
    """Both ways: an extent of 1 in the operand leaves ``x`` as it is."""
    return x.expand(torch.broadcast_shapes(call.shape(), call.ints(1)))


def concat(call: Call, *parts: Value) -> Value:
    return torch.cat(parts, call.axis(0))


def split(call: Call, x: Value, _sizes: Value = None) -> tuple[Value, ...]:
    axis, count = call.axis(0), len(call.node.output)
    sizes = call.ints(1, "split")
    if sizes is None:
        extent = call.shape()[axis]
        step = -(-extent // count)
        sizes = [min(step, extent - begin) for begin in range(0, extent, step)]
    parts = torch.split(x, sizes, axis)
    return tuple(parts[index] for index in range(count))


def slice_(call: Call, x: Value, *_operands: Value) -> Value:
    starts, ends = call.ints(1) or [], call.ints(2) or []
    axes, steps = call.ints(3) or list(range(len(starts))), call.ints(4) or [1] * len(starts)
    if min(steps, default=1) < 0:
        raise call.lacks("with steps backwards")
    index = [slice(None)] * len(call.shape())
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[axis] = slice(*slice(start, end, step).indices(call.shape()[axis]))
    return x[tuple(index)]


def gather(call: Call, x: Value, indices: Value) -> Value:
    axis = call.axis(0)
    if call.known[1] and not call.shape(1):
        return x.select(axis, call.number(1))
    return x[(*[slice(None)] * axis, indices)]


def pad(call: Call, x: Value, *_operands: Value) -> Value:
    mode = call.attributes.get("mode", "constant")
    if mode not in _PADDED:
        raise call.lacks(f"with mode={mode}")
    amounts, rank = call.ints(1) or [], len(call.shape())
    axes = call.ints(3) or list(range(rank))
    pairs = [(0, 0)] * rank
    for axis, begin, end in zip(axes, amounts[: len(axes)], amounts[len(axes) :], strict=True):
        pairs[axis] = (begin, end)
    while len(pairs) > 1 and pairs[0] == (0, 0):  # torch's other modes take the last axes only
        del pairs[0]
    widths = [amount for pair in reversed(pairs) for amount in pair]
    if mode == "constant":
        return F.pad(x, widths, value=call.number(2) or 0.0)
    return F.pad(x, widths, _PADDED[mode])


_PADDED = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}
