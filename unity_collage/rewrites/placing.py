"""placing: pixels that were computed separately are moved into the image after the element-wise operators on them.

So bias and activations can be part of the kernel that computes the pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from .constants import constant
from .rewrite import Rewrite
from .scope import Call, Expr, Scope, op, op_name, rank_of, static_shape
from .views import permutation
from .why_not import WhyNot, shape_text

_POINTWISE = (
    "relax.clip",
    "relax.nn.gelu",
    "relax.nn.gelu_tanh",
    "relax.nn.leakyrelu",
    "relax.nn.relu",
    "relax.nn.silu",
    "relax.sigmoid",
    "relax.tanh",
)


@dataclass(frozen=True, slots=True)
class PatchAxis:
    """An axis of an image: its pixels were computed in ``count`` patches of ``stride``."""

    count: int
    stride: int
    before: int
    """Pixels that are cut off in front."""
    extent: int
    """Pixels of the image."""


def placed(patches: Expr, order: Sequence[int], images: int, units: int, places: Sequence[PatchAxis]) -> Expr:
    """``patches`` in the ``order`` (N, H, kh, W, kw, O) as an image (N, O, H kh, W kw), cut to size."""
    axes = list(range(1, len(places) + 1))
    full = [place.count * place.stride for place in places]
    image = op.reshape(op.permute_dims(patches, order), [images, *full, units])
    if any(place.extent != extent for place, extent in zip(places, full, strict=True)):
        begin = [place.before for place in places]
        image = op.strided_slice(image, axes, begin, [place.before + place.extent for place in places])
    return op.permute_dims(image, [0, len(places) + 1, *axes])


def _before_placing(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """A bias or an activation after the moves of an image's pixels -> the same before the moves."""
    moves = _moves(call.args[0], scope)
    if moves is None:
        return None
    parts = _parts(moves, scope)
    if parts is None:
        return None
    computed: list[Expr] = []
    for part in parts:
        operands = _operands(call, scope, part, moves)
        if isinstance(operands, str):
            return WhyNot(operands, 2)
        computed.append(relax.Call(call.op, [part, *operands], call.attrs, call.ty_args))
    image = computed[0]
    if op_name(moves[-1]) == "relax.concat":
        image = op.concat(computed, axis=int(moves.pop().attrs.axis))
    for move in reversed(moves):
        image = relax.Call(move.op, [image, *move.args[1:]], move.attrs, move.ty_args)
    return image


def _moves(expr: Expr, scope: Scope) -> list[Call] | None:
    """The calls, last first, that put an image in place: :func:`placed`, and what is behind its patches."""
    image = scope.own_call(expr, "relax.permute_dims")
    if image is None:
        return None
    moves, rank = [image], rank_of(image)
    if permutation(image) != [0, rank - 1, *range(1, rank - 1)]:
        return None
    for name in ("strided_slice", "reshape", "permute_dims", "reshape", "concat"):
        move = scope.own_call(moves[-1].args[0], f"relax.{name}")
        if move is None:
            continue
        if name == "permute_dims" and permutation(move)[-1] != rank_of(move) - 1:
            return None
        moves.append(move)
    return moves if any(op_name(move) == "relax.reshape" for move in moves) else None


def _parts(moves: Sequence[Call], scope: Scope) -> list[Expr] | None:
    """What the first of the ``moves`` reads; None for a tuple whose fields are not known."""
    source = moves[-1].args[0]
    if op_name(moves[-1]) != "relax.concat":
        return [source]
    parts = scope.value(source)
    return list(parts.fields) if isinstance(parts, relax.Tuple) else None


def _operands(call: Call, scope: Scope, part: Expr, moves: Sequence[Call]) -> list[Expr] | str:
    """The other operands of ``call``, of an image, for ``part``.

    The last axis of ``part`` holds the channels of some pixels.

    Or why it cannot be applied to ``part``.
    """
    if op_name(call) != "relax.add":
        return list(call.args[1:])
    bias, shape, part_shape = scope.array(call.args[1]), static_shape(call), static_shape(part)
    if bias is None or shape is None or part_shape is None:
        return (
            f"{scope.title(call.args[1])}, which is added to an image of pixels put in place, is not constant"
        )
    channels = shape[1]
    if bias.size != channels or bias.shape[1 - len(shape) :] != (channels, *[1] * (len(shape) - 2)):
        return f"the summand has the shape {shape_text(bias.shape)}, not one value for each of {channels} channels"
    if part_shape[-1] % channels or not all(_keeps_channels(move, channels) for move in moves[1:]):
        return "a move between the pixels and the image takes their channels apart"
    return [constant(np.tile(bias.reshape(-1), part_shape[-1] // channels))]


def _keeps_channels(move: Call, channels: int) -> bool:
    """Whether the position along the last axis modulo ``channels`` does not change."""
    before, after = static_shape(move.args[0]), static_shape(move)
    if op_name(move) == "relax.strided_slice":
        return before is not None and after is not None and before[-1] == after[-1]
    return after is not None and after[-1] % channels == 0


BEFORE_PLACING = Rewrite("before_placing", ("relax.add", *_POINTWISE), _before_placing)
