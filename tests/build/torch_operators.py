"""Functions of torch with inputs, by the converters that they reach: what ``test_torch_operators.py`` compares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]
"""A function, and the inputs that it is compiled for and compared with."""

_GENERATOR = torch.Generator().manual_seed(0)


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=_GENERATOR)


def above(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=_GENERATOR) + 0.5


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values)


X, Y, IMAGE, LINE, VOLUME = draw(3, 5), draw(3, 5), draw(2, 4, 7, 6), draw(2, 4, 9), draw(1, 2, 4, 5, 6)
SPREAD = torch.tensor([-1e-5, 1e-6, 0.05, -0.06, 0.2, -3.0, 4.0, 30.0, -30.0])
NUMBERS, DIVISORS = ints(-7, -6, 0, 5, 7, 8), ints(2, -4, 3, -2, -3, 5)
NOT_FINITE = torch.tensor(
    [[1.0, torch.nan, 5.0], [-torch.inf] * 3, [torch.inf] * 3, [-torch.inf, 2.0, torch.inf]]
)
HALVES = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49])

ELEMENTWISE: dict[str, Case] = {
    **{f.__name__: (f, (SPREAD,)) for f in (
        torch.abs, torch.atan, torch.asinh, torch.ceil, torch.cos, torch.erf, torch.erfc, torch.exp, torch.expm1,
        torch.floor, torch.neg, torch.reciprocal, torch.relu, torch.sigmoid, torch.sign, torch.sin, torch.tanh,
        torch.trunc, torch.isfinite, torch.isnan, torch.isinf, torch.signbit, F.gelu, F.silu, F.elu, F.celu, F.selu,
        F.softplus, F.logsigmoid, F.hardswish, F.hardsigmoid, F.relu6, F.hardtanh, F.leaky_relu, F.mish, F.softsign,
        F.tanhshrink, F.hardshrink, F.softshrink, torch.exp2, torch.rad2deg, torch.logical_not, torch.square)},
    **{f.__name__: (f, (above(3, 4),)) for f in (
        torch.log, torch.log2, torch.log10, torch.sqrt, torch.rsqrt, torch.acosh)},
    **{f.__name__: (lambda x, f=f: f(x / 40), (SPREAD,)) for f in (
        torch.acos, torch.asin, torch.atanh, torch.tan, torch.sinh, torch.cosh)},
    "log1p": (torch.log1p, (torch.tensor([-1e-5, 1e-6, 0.05, -0.06, 0.2, 4.0, 30.0]),)),
    "rounded to even": (torch.round, (HALVES,)),
    "rounded to decimals": (lambda x: torch.round(x, decimals=1), (draw(9),)),
    "rounded to thousands": (lambda x: torch.round(x, decimals=-3), (torch.arange(500.0, 4e5, 1e3),)),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), (SPREAD,)),
    "square root of integers": (torch.sqrt, (ints(0, 1, 2, 9),)),
    "floor of integers": (torch.floor, (ints(1, 2),)),
    "not": (torch.bitwise_not, (NUMBERS,)),
    "not of booleans": (lambda x: ~(x > 0), (X,)),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), (X,)),
    "clamp below": (lambda x: x.clamp(min=0.1), (X,)),
    "clamp of integers": (lambda x: x.clamp(-2, 6), (NUMBERS,)),
    "clamp by tensors": (lambda x, y: x.clamp(max=y), (X, Y)),
    "crossing bounds": (lambda x: x.clamp(0.5, -0.5), (X,)),
    "prelu of channels": (F.prelu, (IMAGE, draw(4))),
    "prelu": (F.prelu, (X, draw(1))),
    "softplus with a threshold": (lambda x: F.softplus(x, 2.0, 3.0), (SPREAD,)),
    "relu of integers": (torch.relu, (NUMBERS,)),
    "nan_to_num": (torch.nan_to_num, (torch.tensor([float("nan"), float("inf"), 1.0]),)),
}  # fmt: skip

BINARY: dict[str, Case] = {
    "add": (lambda x, y: torch.add(x, y, alpha=2), (X, Y)),
    "add numbers to integers": (lambda x: x + 0.5, (NUMBERS,)),
    "add integers to floats": (torch.add, (draw(6), NUMBERS)),
    "add a scalar tensor": (torch.add, (NUMBERS, torch.tensor(2.5))),
    "add booleans": (lambda x: (x > 0) + (x < -0.5), (X,)),
    "multiply booleans": (lambda x: (x > 0) * (x > 0.5), (X,)),
    "multiply by booleans": (lambda x: x * (x > 0), (X,)),
    "subtract from a number": (lambda x: 2 - x, (NUMBERS,)),
    "divide integers": (torch.div, (NUMBERS, DIVISORS)),
    "divide integers down": (lambda x, y: torch.div(x, y, rounding_mode="floor"), (NUMBERS, DIVISORS)),
    "divide integers towards zero": (
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        (NUMBERS, DIVISORS),
    ),
    "divide down": (lambda x, y: torch.div(x, y, rounding_mode="floor"), (X, Y)),
    "floor divide": (lambda x: x // 3, (NUMBERS,)),
    "remainder": (torch.remainder, (NUMBERS, DIVISORS)),
    "remainder of floats": (torch.remainder, (draw(20) * 5, draw(20))),
    "fmod": (torch.fmod, (NUMBERS, DIVISORS)),
    "fmod of floats": (torch.fmod, (draw(20) * 5, draw(20))),
    "power": (torch.pow, (above(3, 5), Y)),
    "power of a number": (lambda x: 2**x, (X,)),
    "square of negatives": (lambda x: x**2, (X,)),
    "cube of integers": (lambda x: x**3, (NUMBERS,)),
    "inverse square root": (lambda x: x**-0.5, (above(4),)),
    "compare integers with a float": (lambda x: x > 4.5, (NUMBERS,)),
    "compare": (lambda x, y: (x <= y) | (x == y), (X, Y)),
    "compare booleans": (lambda x: (x > 0) == (x > 0.5), (X,)),
    "bits": (lambda x, y: (x & y) | (x ^ 3), (NUMBERS, DIVISORS)),
    "shifts": (lambda x: (x << 2) >> 1, (NUMBERS,)),
    "logical": (lambda x, y: torch.logical_xor(x, y), (NUMBERS, ints(0, 1, 0, 1, 0, 1))),
    "maximum": (torch.maximum, (X, Y)),
    "minimum of other dtypes": (torch.minimum, (draw(6), NUMBERS)),
    "extrema of numbers": (
        lambda x, y: (torch.fmax(x, y), torch.fmin(x, y)),
        (NOT_FINITE, NOT_FINITE.flip(0)),
    ),
    "extrema of numbers of integers": (torch.fmax, (NUMBERS, DIVISORS)),
    "atan2": (torch.atan2, (X, Y)),
    "where": (lambda x, y: torch.where(x > 0, x, y), (X, Y)),
    "where with numbers": (lambda x: torch.where(x > 0, x, 0.0), (X,)),
    "masked fill": (lambda x: x.masked_fill(x > 0, float("-inf")), (X,)),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), (X, Y)),
    "addcmul": (lambda x, y: torch.addcmul(x, x, y, value=0.5), (X, Y)),
    "hypot": (torch.hypot, (X, Y)),
    "copy the sign": (torch.copysign, (X, torch.tensor([0.0, -0.0, 2.0, -torch.inf, torch.inf]))),
    "copy the sign of a number": (lambda x: torch.copysign(x, -2.0), (NUMBERS,)),
    "high powers of integers": (lambda x: x**21, (NUMBERS,)),
    "signs of zeros": (torch.signbit, (torch.tensor([0.0, -0.0, 2.0, -2.0]),)),
    "softmax of a number": (lambda x: (x.softmax(0), x.log_softmax(-1)), (torch.tensor(3.0),)),
    "comparisons of NaN": (
        lambda x, y: (x != y, ~(x == y), x <= y, x != torch.nan),
        (NOT_FINITE, NOT_FINITE.flip(0)),
    ),
    "hypot of large and infinite numbers": (
        torch.hypot,
        (3e38 * HALVES, torch.tensor([3e38, torch.inf] * 4)[:7]),
    ),
    "remainders": (
        lambda x, y: (torch.fmod(x, y), torch.remainder(x, y)),
        (1e3 * NOT_FINITE, NOT_FINITE.flip(0)),
    ),
    "logaddexp": (torch.logaddexp, (X, Y)),
}

REDUCTIONS: dict[str, Case] = {
    "sum": (torch.sum, (X,)),
    "sum of axes": (lambda x: x.sum((-1, 1), keepdim=True), (IMAGE,)),
    "sum of booleans": (lambda x: (x > 0).sum(1), (X,)),
    "mean": (lambda x: x.mean(-1), (X,)),
    "product": (lambda x: x.prod(1), (X,)),
    "amax": (lambda x: x.amax((0, 2)), (IMAGE,)),
    "max": (lambda x: x.max(), (X,)),
    "max with places": (lambda x: x.max(1), (X,)),
    "min with places": (lambda x: x.min(0, keepdim=True), (NUMBERS.reshape(2, 3),)),
    "argmax": (lambda x: x.argmax(-1), (X,)),
    "argmax of all": (torch.argmax, (X,)),
    "argmin": (lambda x: x.argmin(0, keepdim=True), (X,)),
    "places of what is not finite": (lambda x: (x.argmax(1), x.argmin(1), x.argmax()), (NOT_FINITE,)),
    "of a number": (
        lambda x: (x.amax(0), x.sum(-1), x.argmin(0), x.norm(0), x.norm(3)),
        (torch.tensor(-4.0),),
    ),
    "variance": (lambda x: x.var(1), (X,)),
    "deviation": (lambda x: x.std((0, 2), correction=0, keepdim=True), (IMAGE,)),
    "variance and mean": (lambda x: torch.var_mean(x, 1), (X,)),
    "any": (lambda x: (x > 1).any(1), (X,)),
    "all": (lambda x: (x > -1).all(), (X,)),
    "any of integers": (lambda x: x.any(), (NUMBERS,)),
    "any and all of nothing": (lambda x: (x.any(1), x.all(1), x.any(), x.all()), (torch.zeros(3, 0),)),
    "no largest elements": (lambda x: x.topk(0, 1), (X,)),
    "running sum": (lambda x: x.cumsum(1), (X,)),
    "running sum of booleans": (lambda x: (x > 0).cumsum(0), (X,)),
    "running product": (lambda x: x.cumprod(1), (X,)),
    "running extrema": (lambda x: (x.cummax(1), x.cummin(0)), (X,)),
    "running extrema of equals": (lambda x: (x.cummax(0), x.cummin(-1)), (ints(3, 1, 3, 1, 2),)),
    "running extrema of what is not finite": (lambda x: (x.cummax(1), x.cummin(0)), (NOT_FINITE,)),
    "running extrema of booleans": (lambda x: (x > 0).cummax(1), (X,)),
    "running extrema of a number": (lambda x: x.cummax(0), (torch.tensor(-4.0),)),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=1), (X,)),
    "norm of order 3": (lambda x: torch.linalg.vector_norm(x, 3, dim=1, keepdim=True), (X,)),
    "largest norm": (lambda x: torch.linalg.vector_norm(x, float("inf")), (X,)),
    "normalize": (lambda x: F.normalize(x, dim=1), (X,)),
    "logsumexp": (lambda x: x.logsumexp(1), (X,)),
    "softmax": (lambda x: x.softmax(1), (IMAGE,)),
    "log softmax": (lambda x: x.log_softmax(-1), (X,)),
    "sort": (lambda x: x.sort(1, descending=True), (X,)),
    "argsort": (lambda x: x.argsort(0), (X,)),
    "topk": (lambda x: x.topk(2, 1), (X,)),
    "least k": (lambda x: x.topk(2, 0, largest=False), (X,)),
    "median": (lambda x: (x.median(), x.median(1), x.t().median(1, keepdim=True)), (X,)),
    "median of what is not finite": (lambda x: (x.median(), x.median(1)), (NOT_FINITE,)),
    "median of integers": (lambda x: x.median(0), (NUMBERS,)),
    "k-th smallest": (lambda x: (x.kthvalue(2, 1), x.kthvalue(1, 0, keepdim=True)), (X,)),
    "sort of equals": (lambda x: torch.sort(x, stable=True), (ints(3, 1, 3, 1, 2),)),
}

SHAPES: dict[str, Case] = {
    "view": (lambda x: x.view(5, -1), (X,)),
    "transpose": (lambda x: x.transpose(1, -1).contiguous(), (IMAGE,)),
    "permute": (lambda x: x.permute(0, 2, 3, 1), (IMAGE,)),
    "squeeze": (lambda x: x[:, :1].squeeze(), (X,)),
    "unsqueeze": (lambda x: x[:, None, ..., None], (X,)),
    "expand": (lambda x: x[None].expand(2, -1, -1), (X,)),
    "repeat": (lambda x: x.repeat(2, 1, 3), (X,)),
    "repeat interleave": (lambda x: x.repeat_interleave(2, 1), (X,)),
    "cat": (lambda x, y: torch.cat([x, y[:, :2], y.int()], -1), (X, Y)),
    "stack": (lambda x, y: torch.stack([x, y], 1), (X, Y)),
    "slice": (lambda x: x[-2:, 1:100:2], (X,)),
    "select": (lambda x: x[:, -1], (X,)),
    "split": (lambda x: x.split(2, 1), (X,)),
    "chunk": (lambda x: x.chunk(3, 1), (X,)),
    "split by sizes": (lambda x: x.split([1, 4], 1), (X,)),
    "unbind": (lambda x: x.unbind(1), (X,)),
    "flip": (lambda x: x.flip(0, 1), (X,)),
    "roll": (lambda x: x.roll((1, -2), (0, 1)), (X,)),
    "roll all": (lambda x: x.roll(4), (X,)),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 1), value=3.0), (X,)),
    "pad less": (lambda x: F.pad(x, (-1, 2)), (X,)),
    "pad integers": (lambda x: F.pad(x, (1, 2), value=-1), (NUMBERS,)),
    "pad by reflection": (lambda x: F.pad(x, (2, 1, 1, 3), "reflect"), (IMAGE,)),
    "pad by the edge": (lambda x: F.pad(x, (2, 1, 0, 3), "replicate"), (IMAGE,)),
    "pad round": (lambda x: F.pad(x, (2, 1), "circular"), (LINE,)),
    "tril": (lambda x: x.tril(1), (X,)),
    "triu of booleans": (lambda x: (x > 0).triu(-1), (X,)),
    "diagonal": (lambda x: x.diagonal(1, 1, 3), (IMAGE,)),
    "write a diagonal": (lambda x, y: torch.diagonal_scatter(x, y, 1, 1, 3), (IMAGE, draw(2, 7, 4))),
    "write a diagonal below": (lambda x, y: torch.diagonal_scatter(x, y, -1), (X, draw(2))),
    "unfold": (lambda x: x.unfold(1, 3, 2), (LINE.transpose(1, 2).contiguous(),)),
    "windows": (lambda x: F.unfold(x, (3, 2), padding=1, stride=2), (IMAGE,)),
    "windows added": (
        lambda x: F.fold(x, (5, 6), (3, 2), padding=(1, 0), stride=(2, 1), dilation=(1, 2)),
        (draw(2, 12, 12),),
    ),
    "pixel shuffle": (lambda x: F.pixel_shuffle(x, 2), (IMAGE,)),
    "pixel unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (draw(1, 2, 4, 6),)),
    "fill the diagonal": (lambda x: x.clone().fill_diagonal_(3.0), (X,)),
    "as strided": (lambda x: x.as_strided((2, 3), (1, 2), 1), (X,)),
    "cast to integers": (lambda x: (x * 3).int(), (X,)),
    "cast to booleans": (lambda x: (x * 0.5).bool(), (torch.tensor([0.0, 0.5, -0.2]),)),
    "einsum": (lambda x, y: torch.einsum("ij,kj->ik", x, y), (X, Y)),
    "views of nothing": (lambda x: (x.view(0, 3), x[:, None].reshape(3, 0, 1)), (torch.zeros(3, 0),)),
    "meshgrid": (lambda x, y: torch.meshgrid(x, y, indexing="ij"), (draw(3), draw(2))),
    "write a slice": (lambda x, y: _written(x, y), (X, Y)),
    "channel shuffle": (lambda x: F.channel_shuffle(x, 2), (IMAGE,)),
}


def _written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[1:2, ::2] = y[:1, ::2]
    x[0] += 1
    return x


def _column(x: torch.Tensor, index: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[:, index] = y
    return x


ROWS, COLUMNS = ints(2, 0, 1, 2), ints(-1, 4, 0, -5)
INDEX = torch.tensor([[0, 2, 1], [4, 4, 0], [1, 1, 3]])

PLACED, BOUNDS = torch.tensor([0.0, 1.0, 1.5, 4.0]), torch.tensor([1.0, 2.0, 3.0])

INDEXING: dict[str, Case] = {
    "embedding": (F.embedding, (INDEX, draw(6, 4))),
    "index select": (lambda x, i: x.index_select(0, i), (X, ROWS)),
    "gather": (lambda x, i: x.gather(1, i), (X, INDEX)),
    "index": (lambda x, i: x[i], (X, ROWS)),
    "negative index": (lambda x, i: x[:, i], (X, COLUMNS)),
    "two indices": (lambda x, i, j: x[i, j], (X, ROWS, COLUMNS)),
    "indices that broadcast": (lambda x, i, j: x[:, i[:, None], j], (IMAGE, ROWS, ints(-1, 3, 0))),
    "indices apart": (lambda x, i, j: x[i, :, j], (IMAGE, ints(1, 0), ints(-1, 3))),
    "constant masks": (
        lambda x: (x[:, torch.tensor([True, False, True, True])], x[..., INDEX[:2, :3] > 1]),
        (draw(3, 4, 2, 3),)),
    "put under a constant mask": (
        lambda x, y: torch.index_put(x, (torch.tensor([True, False, True]),), y), (X, draw(2, 5))),
    "constant indices": (lambda x: x[:, :, [[0], [2]], [1, -1]], (IMAGE,)),
    "indices with a slice": (lambda x, i: x[:, i, 1:3], (IMAGE, ints(-1, 0, 2))),
    "put": (lambda x, i, y: torch.index_put(x, (i,), y), (X, ints(2, 0), draw(2, 5))),
    "put at constants": (lambda x, y: torch.index_put(x, (ints(2, 0), ints(-1, 1)), y), (X, draw(2))),
    "put and add": (lambda x, i, y: torch.index_put(x, (i,), y, accumulate=True), (X, ROWS, draw(4, 5))),
    "put in a column": (lambda x, i, y: _column(x, i, y), (X, ints(-1, 0), draw(3, 2))),
    "put and add booleans": (
        lambda x, i, y: torch.index_put(x, (i,), y, accumulate=True), (X > 0, ROWS, draw(4, 5) > 0)),
    "put under a mask": (lambda x, y: torch.index_put(x, (x > 0,), y), (X, torch.tensor(2.0))),
    "scatter": (lambda x, i, y: x.scatter(1, i, y), (X, torch.tensor([[0, 2], [4, 1], [1, 3]]), Y)),
    "scatter to some rows": (
        lambda x, i, y: (x.scatter(2, i, y), x.scatter_add(1, i, y)),
        (draw(4, 5, 6), torch.tensor([3, 0, 2, 1] * 6).reshape(2, 3, 4), draw(3, 4, 5))),
    "scatter a number": (lambda x, i: x.scatter(1, i, 2.0), (X, INDEX)),
    "scatter and add": (lambda x, i, y: x.scatter_add(1, i, y), (X, INDEX, Y)),
    "scatter and multiply": (lambda x, i, y: x.scatter(1, i, y, reduce="multiply"), (X, INDEX, Y)),
    "scatter and add a number": (lambda x, i: x.scatter(1, i, 2.0, reduce="add"), (X, INDEX)),
    "scatter and add rows": (
        lambda x, i, y: torch.zeros(4, 5).scatter_add(0, i[:, None].expand(-1, 5), y), (X, ROWS, draw(4, 5))),
    **{f"scatter {how} {with_self}": (
        lambda x, i, y, how=how, with_self=with_self: x.scatter_reduce(1, i, y, how, include_self=with_self),
        (X, INDEX, Y)) for how in ("sum", "prod", "mean", "amax", "amin") for with_self in (True, False)},
    **{f"scatter integers {how}": (
        lambda x, i, y, how=how: x.scatter_reduce(0, i, y, how, include_self=False),
        (NUMBERS, ints(1, 1, 3, 5, 5, 5), DIVISORS)) for how in ("mean", "amax", "amin")},
    "index add": (lambda x, i, y: x.index_add(0, i, y, alpha=2), (X, ROWS, draw(4, 5))),
    "index copy": (lambda x, i, y: x.index_copy(1, i, y), (X, ints(3, 0), draw(3, 2))),
    "index fill": (lambda x, i: x.index_fill(1, i, 2.0), (X, ints(3, 0))),
    "masked scatter": (lambda x, y: x.masked_scatter(x > 0, y), (X, Y)),
    "one hot": (lambda i: F.one_hot(i, 5), (INDEX,)),
    "bucketize": (torch.bucketize, (PLACED, BOUNDS)),
    "bucketize what is not finite": (
        lambda x, b: (torch.bucketize(x, b), torch.bucketize(x, b, right=True)), (NOT_FINITE, BOUNDS)),
    "searchsorted": (lambda x, b: torch.searchsorted(b, x, right=True), (PLACED, BOUNDS)),
    "searchsorted in rows": (torch.searchsorted, (X.sort(1).values, Y)),
    "take along": (lambda x: torch.take_along_dim(x, x.argsort(1), 1), (X,)),
}  # fmt: skip


def _convolved(f: Any, x: torch.Tensor, *weight: int, **options: Any) -> Case:
    has_groups = f.__name__.startswith("conv_transpose")
    channels = weight[1] * options.get("groups", 1) if has_groups else weight[0]
    return lambda x, w, b: f(x, w, b, **options), (x, draw(*weight), draw(channels))


WINDOWS: dict[str, Case] = {
    "conv": _convolved(F.conv2d, IMAGE, 6, 4, 3, 3, padding=1, stride=(2, 1)),
    "conv in groups": _convolved(F.conv2d, IMAGE, 8, 2, 3, 3, groups=2, dilation=2, padding=2),
    "conv to the same": _convolved(F.conv2d, IMAGE, 6, 4, 4, 3, padding="same"),
    "conv on a line": _convolved(F.conv1d, LINE, 6, 4, 3, padding=1),
    "conv on a volume": _convolved(F.conv3d, VOLUME, 3, 2, 3, 3, 3, padding=1),
    "conv without a batch": _convolved(F.conv2d, IMAGE[0], 6, 4, 3, 3),
    "transposed": _convolved(F.conv_transpose2d, IMAGE, 4, 6, 4, 4, stride=2, padding=1),
    "transposed in groups": _convolved(
        F.conv_transpose2d, IMAGE, 4, 3, 3, 3, stride=2, groups=2, output_padding=1
    ),
    "transposed, dilated": _convolved(F.conv_transpose2d, IMAGE, 4, 3, 3, 3, dilation=2, stride=2, padding=1),
    "transposed on a line": _convolved(
        F.conv_transpose1d, LINE, 4, 3, 4, stride=3, padding=1, output_padding=2
    ),
    "transposed on a volume": _convolved(F.conv_transpose3d, VOLUME, 2, 3, 3, 2, 3, stride=2, padding=1),
    "max": (lambda x: F.max_pool2d(x, 3, 2, 1), (IMAGE,)),
    "max, rounded up": (lambda x: F.max_pool2d(x, (3, 2), (2, 3), ceil_mode=True), (IMAGE,)),
    "max, dilated": (lambda x: F.max_pool2d(x, 2, 1, 1, 2), (IMAGE,)),
    "max on a line": (lambda x: F.max_pool1d(x, 3, 2), (LINE,)),
    "max without a batch": (lambda x: F.max_pool2d(x, 2), (IMAGE[0],)),
    "average": (lambda x: F.avg_pool2d(x, 3, 2, 1), (IMAGE,)),
    "average without pads": (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (IMAGE,)),
    "average, rounded up": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (IMAGE,)),
    "average by a divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), (IMAGE,)),
    "average on a line": (lambda x: F.avg_pool1d(x, 3, 2, 1), (LINE,)),
    "average on a volume": (lambda x: F.avg_pool3d(x, 2, 1, 1), (VOLUME,)),
    "adaptive average": (lambda x: F.adaptive_avg_pool2d(x, (1, 1)), (IMAGE,)),
    "adaptive average, uneven": (lambda x: F.adaptive_avg_pool2d(x, (3, 4)), (IMAGE,)),
    "adaptive average on a line": (lambda x: F.adaptive_avg_pool1d(x, 4), (LINE,)),
    "adaptive max": (lambda x: F.adaptive_max_pool2d(x, (3, 4)), (IMAGE,)),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (7, 6), w, b), (IMAGE, draw(7, 6), draw(7, 6))),
    "layer norm without factors": (lambda x: F.layer_norm(x, (6,)), (IMAGE,)),
    "group norm": (lambda x, w, b: F.group_norm(x, 2, w, b), (IMAGE, draw(4), draw(4))),
    "instance norm": (lambda x, w, b: F.instance_norm(x, weight=w, bias=b), (IMAGE, draw(4), draw(4))),
    "batch norm": (
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b),
        (IMAGE, draw(4), above(4), draw(4), draw(4)),
    ),
    "batch norm of rows": (lambda x, m, v: F.batch_norm(x, m, v), (X, draw(5), above(5))),
    "batch norm by the batch": (lambda x: F.batch_norm(x, None, None, training=True), (IMAGE,)),
    "rms norm": (lambda x, w: F.rms_norm(x, (5,), w), (X, draw(5))),
    "local response norm": (lambda x: F.local_response_norm(x, 3), (IMAGE,)),
}

IMAGES: dict[str, Case] = {
    **{f"{mode} {corners} {size}": (
        lambda x, mode=mode, corners=corners, size=size: F.interpolate(x, size, mode=mode, align_corners=corners),
        (IMAGE,)) for mode, corners in (
            ("nearest", None), ("nearest-exact", None), ("bilinear", False), ("bilinear", True), ("bicubic", False),
            ("bicubic", True)) for size in ((14, 12), (5, 13), (1, 3))},
    **{f"{mode} by {scale}": (
        lambda x, mode=mode, scale=scale: F.interpolate(x, scale_factor=scale, mode=mode), (IMAGE,))
        for mode in ("nearest", "bilinear", "bicubic") for scale in (2.0, 1.7, 0.6)},
    **{f"{mode} to nearly the same": (
        lambda x, mode=mode: F.interpolate(x, scale_factor=(1.1, 2.1), mode=mode), (IMAGE,))
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")},
    **{f"{mode} antialiased to nearly the same": (
        lambda x, mode=mode: F.interpolate(x, scale_factor=(1.1, 0.6), mode=mode, antialias=True), (IMAGE,))
        for mode in ("bilinear", "bicubic")},
    "nearest of a volume to the same": (lambda x: F.interpolate(x, scale_factor=1.1), (VOLUME,)),
    **{f"{mode} antialiased": (
        lambda x, mode=mode: F.interpolate(x, (3, 5), mode=mode, antialias=True), (IMAGE,))
        for mode in ("bilinear", "bicubic")},
    "linear": (lambda x: F.interpolate(x, 5, mode="linear"), (LINE,)),
    "nearest on a line": (lambda x: F.interpolate(x, 13), (LINE,)),
    "trilinear": (lambda x: F.interpolate(x, (3, 8, 7), mode="trilinear"), (VOLUME,)),
    **{f"samples {mode} {border} {corners}": (
        lambda x, g, mode=mode, border=border, corners=corners: F.grid_sample(x, g, mode, border, corners),
        (IMAGE, draw(2, 5, 4, 2)))
        for mode in ("bilinear", "nearest", "bicubic") for border in ("zeros", "border", "reflection")
        for corners in (False, True)},
    "affine grid": (lambda t: F.affine_grid(t, (2, 3, 4, 5), align_corners=False), (draw(2, 2, 3),)),
}  # fmt: skip

HEADS = draw(2, 3, 5, 4)
MASK = torch.tensor([[1.0, 0, 1, 0, 1]] * 4 + [[0.0] * 5])

PRODUCTS: dict[str, Case] = {
    "linear": (F.linear, (draw(2, 3, 5), draw(4, 5), draw(4))),
    "matmul": (torch.matmul, (IMAGE, draw(6, 3))),
    "matmul that broadcasts": (torch.matmul, (draw(2, 1, 3, 5), draw(4, 5, 2))),
    "matrix and vector": (torch.matmul, (X, draw(5))),
    "dot": (torch.dot, (draw(5), draw(5))),
    "bmm": (torch.bmm, (draw(2, 3, 4), draw(2, 4, 5))),
    "addmm": (lambda a, x, y: torch.addmm(a, x, y, beta=0.5, alpha=2), (draw(4), X, draw(5, 4))),
    "baddbmm": (torch.baddbmm, (draw(2, 3, 5), draw(2, 3, 4), draw(2, 4, 5))),
    "outer": (torch.outer, (draw(3), draw(4))),
    "bilinear": (F.bilinear, (X, draw(3, 2), draw(4, 5, 2), draw(4))),
    "attention": (F.scaled_dot_product_attention, (HEADS, HEADS, HEADS)),
    "causal": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (HEADS,)),
    "masked": (lambda q, m: F.scaled_dot_product_attention(q, q, q, m), (HEADS, draw(5, 5))),
    "masked rows": (
        lambda q, x: F.scaled_dot_product_attention(q, q, q, x > 0.5), (HEADS, MASK)),
    "shared heads": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k, scale=0.3, enable_gqa=True),
        (draw(2, 4, 5, 4), draw(2, 2, 7, 4))),
    "distances": (torch.cdist, (draw(2, 3, 4), draw(2, 5, 4))),
    "cosine similarity": (F.cosine_similarity, (X, Y)),
}  # fmt: skip

GROUPS = {
    "elementwise": ELEMENTWISE,
    "binary": BINARY,
    "reductions": REDUCTIONS,
    "shapes": SHAPES,
    "indexing": INDEXING,
    "windows": WINDOWS,
    "images": IMAGES,
    "products": PRODUCTS,
}
