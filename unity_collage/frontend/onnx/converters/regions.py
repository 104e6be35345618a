"""Operators on boxes and regions of interest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax, te, tirx

from ..equal_sizes import require_shape
from ..node import Converted, OnnxNode
from ..values import Dim
from .kernels import increment, kernel, loop, store, when
from .runtime_shapes import as_int64, empty, from_the_end, intrinsics, is_empty, results, sizes_of
from .sorting import sort


def _non_max_suppression(node: OnnxNode) -> Converted:
    """The boxes of each class by descending score, without those that overlap a better one."""
    (batch, classes, count), centred = node.shape(1), bool(node.attribute("center_point_box", 0))
    most = node.numbers(2) if node.has(2) else None
    none = not node.has(2) or (most is not None and (most.size == 0 or int(most.reshape(-1)[0]) <= 0))
    if none or is_empty([batch, classes, count]):
        return empty(node, [0, 3], "int64")
    require_shape(node, "a tensor of boxes", node.shape(0), [batch, count, 4])
    limit = node.cast(node[2], "int64")
    overlap = node[3] if _is_given(node, 3) else node.constant(0.0, "float32")
    least = [node[4]] if _is_given(node, 4) else []

    def suppressed(boxes: te.Tensor, scores: te.Tensor, *more: te.Tensor) -> list[te.Tensor]:
        return _suppressed(boxes, scores, centred, *more)

    found = results(node, suppressed, 5, node[0], node[1], limit, overlap, *least)
    (number,) = sizes_of(node, found[1])

    def begin(rows: te.Tensor, number: Any) -> te.Tensor:
        return te.compute((number, 3), lambda n, k: rows(n, k), name="begin")

    return node.builder.call_te(begin, found[0], number)


def _is_given(node: OnnxNode, position: int) -> bool:
    return node.has(position) and not is_empty(node.shape(position))


def _suppressed(
    boxes: te.Tensor,
    scores: te.Tensor,
    centred: bool,
    limit: te.Tensor,
    overlap: te.Tensor,
    *least: te.Tensor,
) -> list[te.Tensor]:
    """Rows of batch, class and box, their number, and buffers for the computation."""
    batch, classes, count = (as_int64(size) for size in scores.shape)

    def steps(*buffers: Any) -> None:
        boxes_, scores_, limit_, overlap_, *rest = buffers
        rows, total, order, scratch, state = rest[len(least) :]
        store(total, 0, 0)
        with loop(batch) as b, loop(classes) as c:
            base = (b * classes + c) * count

            def score(box: Any, base: Any = base) -> Any:
                return scores_[base + box]

            with loop(count) as n:
                store(order, n, n)
            sort(order, scratch, state, as_int64(0), count, lambda x, y: score(x) > score(y))
            store(state, 0, total[0])  # the first row of this class
            with loop(count) as n:
                box = order[n]
                passes = score(box) > rest[0][0] if least else tirx.Not(tirx.isnan(score(box)))
                with when(tirx.all(passes, total[0] - state[0] < limit_[0])):
                    store(state, 1, 1)
                    with loop(total[0] - state[0]) as m:
                        other = rows[(state[0] + m) * 3 + 2]
                        # Few boxes are left to compare after one that suppresses.
                        with when(state[1] == 1):
                            covers = _overlaps(
                                boxes_, b * count + box, b * count + other, centred, overlap_[0]
                            )
                            store(state, 1, tirx.Select(covers, as_int64(0), as_int64(1)))
                    with when(state[1] == 1):
                        for k, item in enumerate((b, c, box)):
                            store(rows, total[0] * 3 + k, as_int64(item))
                        increment(total, 0)

    size = scores.shape[2]
    made = [
        ((batch * classes * count, 3), "int64"), ((1,), "int64"), ((size,), "int64"), ((size,), "int64"),
        ((4,), "int64"),
    ]  # fmt: skip
    return kernel("non_max_suppression", [boxes, scores, limit, overlap, *least], made, steps)


def _overlaps(boxes: Any, a: Any, b: Any, centred: bool, limit: Any) -> Any:
    """Whether the intersection of two boxes is more than ``limit`` of their union."""
    (a_low, a_high), (b_low, b_high) = _corners(boxes, a, centred), _corners(boxes, b, centred)
    sides = [
        tirx.min(a_high[n], b_high[n]) - tirx.max(a_low[n], b_low[n]) for n in range(2)
    ]  # not positive where the boxes do not meet
    common = sides[0] * sides[1]
    areas = [(high[0] - low[0]) * (high[1] - low[1]) for low, high in ((a_low, a_high), (b_low, b_high))]
    union = areas[0] + areas[1] - common
    real = tirx.all(sides[0] > 0.0, sides[1] > 0.0, areas[0] > 0.0, areas[1] > 0.0, union > 0.0)
    return tirx.all(real, common / union > limit)


def _corners(boxes: Any, box: Any, centred: bool) -> tuple[list[Any], list[Any]]:
    """The lower and the higher corner of a box."""
    first, second, third, fourth = (boxes[box * 4 + n] for n in range(4))
    if centred:
        pairs = [(first - third / 2.0, first + third / 2.0), (second - fourth / 2.0, second + fourth / 2.0)]
    else:
        pairs = [(tirx.min(p, q), tirx.max(p, q)) for p, q in ((first, third), (second, fourth))]
    return [low for low, _ in pairs], [high for _, high in pairs]


def _roi_align(node: OnnxNode) -> Converted:
    mode = node.attribute("mode", "avg").lower()
    default = "half_pixel" if node.version >= 16 else "output_half_pixel"
    transform = node.attribute("coordinate_transformation_mode", default).lower()
    if mode not in ("avg", "max") or transform not in ("half_pixel", "output_half_pixel"):
        node.refuse(
            f"its mode {mode!r} or coordinate transformation {transform!r} is not one of the standard"
        )
    require_shape(node, "a tensor of regions", node.shape(1), [node.shape(1)[0], 4])
    require_shape(node, "batch_indices", node.shape(2), node.shape(1)[:1])
    height, width = node.attribute("output_height", 1), node.attribute("output_width", 1)
    sizes = [node.shape(1)[0], node.shape()[1], height, width]
    if is_empty(sizes):
        return empty(node, sizes, node.dtype())
    wide, dtype = ("float64" if node.dtype() == "float64" else "float32"), node.dtype()
    scale, samples = float(node.attribute("spatial_scale", 1.0)), int(node.attribute("sampling_ratio", 0))

    def aligned(data: te.Tensor, rois: te.Tensor, batch: te.Tensor, sizes: list[Any]) -> te.Tensor:
        return _aligned(data, rois, batch, sizes, mode, transform == "half_pixel", scale, samples)

    operands = node.cast(node[0], wide), node.cast(node[1], wide), node.cast(node[2], "int64")
    found = node.builder.call_te(aligned, *operands, sizes)
    return found if wide == dtype else relax.op.astype(node.emit(found), dtype)


def _aligned(
    data: te.Tensor, rois: te.Tensor, batch: te.Tensor, sizes: list[Any], mode: str, half: bool, scale: float,
    samples: int,
) -> te.Tensor:  # fmt: skip
    """Bilinear samples on a grid in each bin of each region, averaged or their maximum."""
    count, channels, rows, columns = (as_int64(size) for size in sizes)
    batches, _, height, width = (as_int64(size) for size in data.shape)
    dtype = data.dtype

    def steps(image: Any, boxes: Any, which: Any, out: Any) -> None:
        with loop(count) as n:
            bounds = [boxes[n * 4 + k] * tirx.const(scale, dtype) - (0.5 if half else 0.0) for k in range(4)]
            spans = [bounds[2] - bounds[0], bounds[3] - bounds[1]]
            if not half:
                spans = [tirx.max(span, tirx.const(1, dtype)) for span in spans]
            bins = [spans[0] / columns.astype(dtype), spans[1] / rows.astype(dtype)]
            grid = [
                as_int64(samples)
                if samples > 0
                else tirx.max(intrinsics.ceil(size).astype("int64"), as_int64(0))
                for size in bins
            ]
            number = tirx.max(grid[0] * grid[1], as_int64(1)).astype(dtype)
            with loop(channels) as c, loop(rows) as ph, loop(columns) as pw:
                at = ((n * channels + c) * rows + ph) * columns + pw
                plane = (from_the_end(which[n], batches) * channels + c) * height * width
                store(out, at, tirx.const(0, dtype))
                with loop(grid[1]) as iy, loop(grid[0]) as ix:
                    y = (
                        bounds[1]
                        + ph.astype(dtype) * bins[1]
                        + (iy.astype(dtype) + 0.5) * bins[1] / grid[1].astype(dtype)
                    )
                    x = (
                        bounds[0]
                        + pw.astype(dtype) * bins[0]
                        + (ix.astype(dtype) + 0.5) * bins[0] / grid[0].astype(dtype)
                    )
                    parts = _bilinear(image, plane, y, x, height, width, dtype)
                    if mode == "avg":
                        store(out, at, out[at] + (parts[0] + parts[1] + parts[2] + parts[3]))
                    else:
                        best = tirx.max(tirx.max(parts[0], parts[1]), tirx.max(parts[2], parts[3]))
                        first = tirx.all(iy == 0, ix == 0)
                        store(out, at, tirx.Select(first, best, tirx.max(out[at], best)))
                if mode == "avg":
                    store(out, at, out[at] / number)

    return kernel("roi_align", [data, rois, batch], [(sizes, dtype)], steps)[0]


def _bilinear(image: Any, plane: Any, y: Any, x: Any, height: Any, width: Any, dtype: str) -> list[Any]:
    """The four weighted neighbours of a place, which are zero for a place outside."""
    outside = tirx.any(
        y < -1.0, y > height.astype(dtype), x < -1.0, x > width.astype(dtype), tirx.isnan(y), tirx.isnan(x)
    )
    rows, columns = _neighbours(y, height, dtype), _neighbours(x, width, dtype)
    return [
        tirx.if_then_else(
            outside, tirx.const(0, dtype), row_weight * column_weight * image[plane + row * width + column]
        )
        for row, row_weight in rows
        for column, column_weight in columns
    ]


def _neighbours(x: Any, size: Any, dtype: str) -> list[tuple[Any, Any]]:
    """The elements before and after a coordinate, each with its weight."""
    last = tirx.max(size - 1, as_int64(0))
    at = tirx.min(tirx.max(x, tirx.const(0, dtype)), last.astype(dtype))
    low = intrinsics.floor(at).astype("int64")
    rest = at - low.astype(dtype)
    return [(low, 1.0 - rest), (tirx.min(low + 1, last), rest)]


def _max_roi_pool(node: OnnxNode) -> Converted:
    rows, columns = node.required("pooled_shape")
    scale = float(node.attribute("spatial_scale", 1.0))
    require_shape(node, "a tensor of regions", node.shape(1), [node.shape(1)[0], 5])
    sizes: list[Dim] = [node.shape(1)[0], node.shape()[1], rows, columns]
    if is_empty(sizes):
        return empty(node, sizes, node.dtype())

    def pooled(data: te.Tensor, rois: te.Tensor, sizes: list[Any]) -> te.Tensor:
        return _pooled(data, rois, sizes, scale)

    return node.builder.call_te(pooled, node[0], node[1], sizes)


def _pooled(data: te.Tensor, rois: te.Tensor, sizes: list[Any], scale: float) -> te.Tensor:
    """The maximum of each bin of each region, with bounds rounded to elements; 0 for an empty bin."""
    count, channels, rows, columns = (as_int64(size) for size in sizes)
    batches, _, height, width = (as_int64(size) for size in data.shape)
    dtype = data.dtype

    def steps(image: Any, boxes: Any, out: Any) -> None:
        def bound(n: Any, k: int) -> Any:
            scaled = boxes[n * 5 + k].astype("float32") * tirx.const(scale, "float32")
            up = intrinsics.floor(intrinsics.abs(scaled) + 0.5)  # halves away from zero
            return tirx.Select(scaled < 0.0, -up, up).astype("int64")

        with loop(count) as n, loop(channels) as c, loop(rows) as ph, loop(columns) as pw:
            at = ((n * channels + c) * rows + ph) * columns + pw
            which = from_the_end(boxes[n * 5].astype("int64"), batches)
            ys = _bin(bound(n, 2), bound(n, 4), ph, rows, height)
            xs = _bin(bound(n, 1), bound(n, 3), pw, columns, width)
            plane = (which * channels + c) * height * width
            store(out, at, tirx.const(0, dtype))
            with (
                loop(tirx.max(ys[1] - ys[0], as_int64(0))) as y,
                loop(tirx.max(xs[1] - xs[0], as_int64(0))) as x,
            ):
                value = image[plane + (ys[0] + y) * width + xs[0] + x]
                first = tirx.all(y == 0, x == 0)
                store(out, at, tirx.Select(first, value, tirx.max(out[at], value)))

    return kernel("max_roi_pool", [data, rois], [(sizes, dtype)], steps)[0]


def _bin(begin: Any, end: Any, place: Any, count: Any, size: Any) -> tuple[Any, Any]:
    """The first element of a bin and the one after the last, inside of the axis."""
    span = tirx.max(end - begin + 1, as_int64(1)).astype("float32") / count.astype("float32")
    low = intrinsics.floor(place.astype("float32") * span).astype("int64")
    high = intrinsics.ceil((place + 1).astype("float32") * span).astype("int64")
    first, after = (tirx.min(tirx.max(edge + begin, as_int64(0)), size) for edge in (low, high))
    return first, after


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "MaxRoiPool": _max_roi_pool,
    "NonMaxSuppression": _non_max_suppression,
    "RoiAlign": _roi_align,
}
