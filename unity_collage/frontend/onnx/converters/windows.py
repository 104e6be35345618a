"""Windows that slide over the spatial axes of an image (N, C, D1, ...): sizes, steps and padding of an ONNX node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm import ir, relax, te, tirx

from ..node import OnnxNode
from ..values import Dim


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """A window; each field has an item for each spatial axis."""

    sizes: tuple[int, ...]
    """Elements of the window."""
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[Dim, ...]
    """Elements of padding in front of the image; they may depend on symbolic sizes."""
    after: tuple[Dim, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """From the first element of the window to the last."""
        return tuple((size - 1) * step + 1 for size, step in zip(self.sizes, self.dilations, strict=True))

    @property
    def is_static(self) -> bool:
        """Whether the padding is known and adds elements only."""
        return all(isinstance(width, int) and width >= 0 for width in (*self.before, *self.after))

    @property
    def padding(self) -> list[int]:
        """The padding as Relax operators take it, which must be static."""
        return [width for width in (*self.before, *self.after) if isinstance(width, int)]

    def unpadded(self) -> SlidingWindow:
        """The same window without padding."""
        none = (0,) * len(self.sizes)
        return replace(self, before=none, after=none)

    def results(self, image: Sequence[Dim]) -> list[Dim]:
        """How many whole windows fit along each axis of an image."""
        found = zip(image, self.before, self.after, self.extents, self.strides, strict=True)
        return [at_least(size + b + a - extent, -step) // step + 1 for size, b, a, extent, step in found]


def window_of(node: OnnxNode, sizes: Sequence[int], image: Sequence[Dim]) -> SlidingWindow:
    """The window of a convolution or pool; ``image`` are the spatial sizes of its image."""
    axes = len(sizes)
    strides = tuple(node.attribute("strides", [1] * axes))
    dilations = tuple(node.attribute("dilations", [1] * axes))
    pads = list(node.attribute("pads", [0] * 2 * axes))
    if not len(image) == axes == len(strides) == len(dilations) == len(pads) / 2:
        node.refuse(
            f"its window has {axes} axes, and the image {len(image)}, or strides, dilations or pads differ"
        )
    if min((*sizes, *strides, *dilations), default=1) < 1:
        node.refuse("the sizes, strides and dilations of its window must be positive")
    window = SlidingWindow(tuple(sizes), strides, dilations, tuple(pads[:axes]), tuple(pads[axes:]))
    mode = node.attribute("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return window
    if mode == "VALID":
        return window.unpadded()
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        node.refuse(f"its auto_pad is {mode!r}")
    total = [
        extent - 1 if step == 1 else at_least((-(-size // step) - 1) * step + extent - size, 0)
        for size, step, extent in zip(image, strides, window.extents, strict=True)
    ]
    less = tuple(width // 2 for width in total)
    more = tuple(width - half for width, half in zip(total, less, strict=True))
    before, after = (less, more) if mode == "SAME_UPPER" else (more, less)
    return replace(window, before=before, after=after)


def at_least(size: Dim, least: int) -> Dim:
    """``max(size, least)``."""
    return max(size, least) if isinstance(size, int) else tirx.max(size, tirx.const(least, "int64"))


def padded(
    node: OnnxNode, image: relax.Expr, before: Sequence[Dim], after: Sequence[Dim], value: float = 0
) -> relax.Expr:
    """``image`` with more elements at the ends of its last axes, or fewer where the padding is negative."""
    if not any(isinstance(width, ir.Expr) or width for width in (*before, *after)):
        return image
    dims = node.dims(image)
    lead = len(dims) - len(before)
    if all(isinstance(width, int) and width >= 0 for width in (*before, *after)):
        widths = [0] * 2 * lead + [
            w for pair in zip(before, after, strict=True) for w in pair if isinstance(w, int)
        ]
        return node.emit(relax.op.nn.pad(image, widths, "constant", value))

    def pad(x: te.Tensor, front: Sequence[Dim], behind: Sequence[Dim]) -> te.Tensor:
        ends = zip(x.shape[lead:], front, behind, strict=True)
        shape = [*x.shape[:lead], *(size + b + a for size, b, a in ends)]

        def element(*place: ir.Expr) -> ir.Expr:
            source = [*place[:lead], *(at - width for at, width in zip(place[lead:], front, strict=True))]
            inside = is_inside(source[lead:], x.shape[lead:])
            return tirx.if_then_else(inside, x(*source), tirx.const(value, x.dtype))

        return te.compute(shape, element, name="pad", tag="injective,pad")

    return node.emit(node.builder.call_te(pad, image, list(before), list(after)))


def is_inside(place: Sequence[ir.Expr], shape: Sequence[Dim]) -> ir.Expr:
    """Whether a place is one of a tensor of this shape."""
    bounds = [both for at, size in zip(place, shape, strict=True) for both in (at >= 0, at < size)]
    return tirx.all(*bounds)
