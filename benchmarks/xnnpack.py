"""Single kernels of XNNPACK beside ours: is it a library that would win somewhere?

    pip install --no-deps executorch==1.5.1      # for the library in it
    python benchmarks/xnnpack.py [--rounds 5] [--only softmax]

The kernels are those of ``kernels.py`` that XNNPACK has an operator for. Both are timed warm, as often as fits, on as
many threads, XNNPACK in a process of its own, in interleaved rounds; the ratio is the median of those within a round.
Numbers of both are compared with numpy's. What a call costs is part of XNNPACK's time.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import kernels
import numpy as np
import xnnpack_graphs as x
from kernels import Row, arrays, timed_kernels, why_wrong
from rich.console import Console
from rich.table import Table

import unity_collage as uc
from unity_collage.report import duration

DEFINED: Mapping[str, Callable[[Any], x.Define]] = {
    "add+relu 56x56x256": x.sum_and_relu,
    "gelu 128x3072": x.unary("gelu"),
    "sigmoid 672x14x14": x.unary("sigmoid"),
    "tanh 1x1024": x.unary("tanh"),
    "softmax 12x128x128": x.unary("softmax"),
    "softmax 6x197x197": x.unary("softmax"),
    "mean NHWC 7x7x2048": x.mean(1, 2),
    "mean NCHW 2048x7x7": x.mean(2, 3),
    "concat NHWC 256+32": x.concatenation(3),
    "transpose 0213": x.permutation(0, 2, 1, 3),
    "NCHW to NHWC": x.permutation(0, 2, 3, 1),
    "max pool 3x3, stride 2": x.max_pool,
    "average pool 3x3": x.average_pool,
    "depthwise 3x3 192-192 28x28": x.depthwise(3, 192),
    "grouped 3x3 128-128 56x56": x.convolution(3, 1, 32, 128, 128),
    "convolution 1x1 256-64 56x56": x.convolution(1, 1, 1, 256, 64),
    "convolution 3x3 64-64 56x56": x.convolution(3, 1, 1, 64, 64),
    "convolution 3x3 128-128 28x28": x.convolution(3, 1, 1, 128, 128),
    "convolution 3x3 512-512 7x7": x.convolution(3, 1, 1, 512, 512),
    "convolution 3x3 128-128 56x56 / 2": x.convolution(3, 2, 1, 128, 128),
    "product 128x768x768": x.product,
    "product 197x384x384": x.product,
    "product 1x768x3072": x.product,
    "product 1x784x256": x.product,
}


def _filters(row: Row) -> list[np.ndarray]:
    """The weights as XNNPACK wants them: of convolutions output channels first, of depthwise ones last."""
    weights = kernels.weights(row)
    if len(weights) != 2 or weights[0].ndim != 4:
        return weights
    order = (2, 0, 1, 3) if row.name.startswith("depthwise") else (3, 0, 1, 2)
    return [np.ascontiguousarray(weights[0].transpose(order)), weights[1].reshape(-1)]


def serve(pipe: Connection, names: list[str], threads: int) -> None:
    """XNNPACK's process: makes each requested kernel, reports what is wrong with it, and times it."""
    library, made = x.Library(threads), {}
    rows = {row.name: row for row in kernels.ROWS}
    for name in names:
        inputs, _, expected = arrays(rows[name])
        made[name] = x.Kernel(library, inputs, _filters(rows[name]), expected.shape, DEFINED[name])
        pipe.send(why_wrong(made[name].result(), expected))
    while (asked := pipe.recv()) is not None:
        name, seconds = asked
        pipe.send(made[name].timed(seconds))


def raced(row: Row, pipe: Connection, rounds: int, seconds: float) -> tuple[str, str, str, str]:
    """A row of the table."""
    times = timed_kernels(row)
    best = min(times, key=lambda name: times[name](seconds))
    pairs: list[tuple[float, float]] = []
    for _ in range(rounds):
        own = times[best](seconds)
        pipe.send((row.name, seconds))
        pairs.append((own, pipe.recv()))
    ratio = statistics.median(theirs / own for own, theirs in pairs)
    own, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    return row.name, duration(theirs), f"{best} {duration(own)}", f"{ratio:.2f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each in each round")
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    options = parser.parse_args()
    rows = [row for row in kernels.ROWS if row.name in DEFINED and options.only in row.name]
    context = get_context("spawn")
    pipe, theirs = context.Pipe()
    names = [row.name for row in rows]
    process = context.Process(target=serve, args=(theirs, names, uc.num_threads()), daemon=True)
    process.start()
    theirs.close()  # so that the end of that process ends what is received from it
    table = Table("kernel", "XNNPACK", "fastest of ours", "XNNPACK / ours", box=None)
    try:
        reasons = [pipe.recv() for _ in rows]
    except EOFError:
        raise SystemExit("XNNPACK's process has ended; what it said is above") from None
    for row, reason in zip(rows, reasons, strict=True):
        if reason is not None:
            raise SystemExit(f"{row.name}, XNNPACK: {reason}")
    for row in rows:
        table.add_row(*raced(row, pipe, options.rounds, options.seconds))
    pipe.send(None)
    process.join()
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
