"""Whole networks on one NVIDIA GPU: ours against torch.compile and against eager torch in a CUDA graph.

usage: python -m benchmarks.gpu [--models NAME ...] [--precision f32 tf32 f16] [--batch 1 16] [--calls N] [--alone]
                                [--time S] --out FILE.json

Competitors take turns in rounds. A time is the median of the rounds, by CUDA events around ``--calls`` calls in a
row, with inputs on the device. In f32 none of them uses TF32, in tf32 all do. In f16 torch runs ``module.half()`` on
inputs in float16; ours takes and returns float32. For torch, images have the layout in which its eager mode is
faster; for ours they have channels first. In f32 and tf32 ours searches the layout of each image between kernels.

``error`` is the length of the difference to eager torch in float32 over the length of that. ``additive_error`` is how
much longer a call takes than the costs of the kernels together, as a part of these.

A competitor that fails or takes longer than ``--limit`` has the reason in its row. FILE is written after each row.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path

from .jobs import BATCHES, PRECISIONS, Job, Settings, competitors
from .machine import gpu, missing_peers, torch_facts, versions
from .parent import Runner
from .report import Results, lines_of, plot

NAMES = ("resnet50", "resnext50_32x4d", "mobilenet_v2", "bert-base", "bert-base-eager", "gpt2", "nasnet")


def main(arguments: Sequence[str]) -> int:
    """Runs all jobs; returns the exit code."""
    options = options_of(arguments)
    settings, begun = settings_of(options), time.monotonic()
    facts = {
        "gpu_before": gpu(),
        "versions": versions(),
        "torch": torch_facts(),
        "settings": asdict(settings),
    }
    results = Results(options.out, {**facts, "missing_peers": missing_peers()})

    def say(text: str) -> None:
        sys.stderr.write(f"[{time.monotonic() - begun:6.1f} s] {text}\n")
        sys.stderr.flush()

    def keep(row: dict) -> None:
        results.add(row | {"gpu": gpu()})
        sys.stdout.write("\n".join(lines_of(row)) + "\n")
        sys.stdout.flush()

    say(f"{facts['gpu_before']}, missing: {results.data['missing_peers']}")
    end = None if options.time is None else begun + options.time
    left = Runner(settings, keep, say, options.limit, end).run(jobs_of(options))
    results.finish(gpu_after=gpu(), not_run=[job.title for job in left])
    if left:
        say(f"no time was left for {', '.join(job.title for job in left)}")
    if reason := plot(results.data["rows"], options.out.with_suffix(".svg")):
        say(f"no plot: {reason}")
    return 0


def jobs_of(options: argparse.Namespace) -> list[Job]:
    """One job for each network, precision and batch size."""
    names = competitors(options.alone, options.without)
    return [
        Job(model, batch, precision, names)
        for model, precision, batch in product(options.models, options.precision, options.batch)
    ]


def settings_of(options: argparse.Namespace) -> Settings:
    return Settings(
        device=options.device,
        calls=options.calls,
        rounds=options.rounds,
        warm_up=options.warm_up,
        budget_seconds=options.budget,
        mode=options.mode,
        freezing=options.freezing,
        database=options.database,
    )


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=NAMES, default=list(NAMES), metavar="NAME")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--batch", nargs="+", type=_positive, default=list(BATCHES))
    parser.add_argument("--calls", type=_positive, default=Settings.calls, help="in a row, in each round")
    parser.add_argument("--rounds", type=_positive, default=Settings.rounds)
    parser.add_argument(
        "--warm-up", type=_positive, default=Settings.warm_up, help="calls of each before the first round"
    )
    parser.add_argument("--alone", action="store_true", help="ours with each backend alone, too")
    parser.add_argument(
        "--without", nargs="+", default=[], choices=competitors(alone=True), metavar="COMPETITOR"
    )
    parser.add_argument("--mode", default="max-autotune", help="of torch.compile")
    parser.add_argument("--freezing", action="store_true", help="torch.compile takes weights as constants")
    parser.add_argument(
        "--budget", type=float, default=35.0, help="seconds of measuring in a compile of ours"
    )
    parser.add_argument("--database", help="of our costs")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds of a step, such as one compile")
    parser.add_argument("--time", type=float, help="seconds of the whole run; what is done by then is kept")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a trial of the benchmark"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1")
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
