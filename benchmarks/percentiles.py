"""Plans by another percentile, and whether the intervals of costs hold.

    python benchmarks/percentiles.py [NAME ...] [--percentile 90] [--repeats 8] [--rounds 20] [--json FILE]

*Programs*: the plan by medians and the plan by the percentile, timed in turns. ``p50`` and ``p90`` are ratios of the
second to the first, of the medians and of the 90th percentiles of a round: below 1 the plan by the percentile is
faster there (median and quartiles of the rounds).

*Intervals*: each kernel of the plan by medians is measured ``--repeats`` times, each time by a new worker into a new
database; doubtful costs do not count. *Truth* is how many intervals contain the median of all these measurements;
an interval of 95 % confidence should in 95 % of the cases. *Apart* is the same, with the speed of the machine in each
turn taken out (the median over all kernels). *Next* is how many of the other measurements of the kernel an interval
contains.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import networks
import numpy as np
from rich.console import Console
from rich.table import Table
from tvm.ir import IRModule
from zoo import kernel_backends

import unity_collage as uc
from unity_collage.cost.asking import workloads
from unity_collage.cost.model import Workload
from unity_collage.database.costs import CostDatabase
from unity_collage.frontend.models import import_model
from unity_collage.measure.inputs import random_inputs
from unity_collage.measure.measured import MeasuredCost
from unity_collage.pipeline import Pipeline
from unity_collage.plan.costs import Cost
from unity_collage.scratch import Scratch

NETWORKS = ("bilstm_tagger", "mobilenetv2_100", "nasrnn", "squeezenet")
SECONDS = 0.25
"""Of each program in each round."""


def programs(mod: IRModule, folder: Path, percentile: float, budget: float) -> list[uc.Program]:
    """The programs of the plan by medians and of that by a percentile."""
    database = CostDatabase(folder / "costs.db")
    asked: Any = {"backends": kernel_backends(), "database": database, "recompile": True, "packs": False}
    return [uc.compile(mod, percentile=each, budget_seconds=budget, **asked) for each in (50.0, percentile)]


def runs(program: uc.Program, inputs: Sequence[np.ndarray]) -> list[float]:
    """The times of runs one after the other."""
    found: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(found) < 20:
        start = time.perf_counter()
        program(*inputs)
        found.append(time.perf_counter() - start)
    return found


def compared(pair: Sequence[uc.Program], inputs: Sequence[np.ndarray], rounds: int) -> dict[str, Any]:
    """For p50 and p90 of a round: the ratio of the second program to the first, its quartiles, and the times."""
    times = [[runs(program, inputs) for program in pair] for _ in range(rounds)]
    found: dict[str, Any] = {}
    for percentile in (50, 90):
        each = [[float(np.percentile(part, percentile)) for part in row] for row in times]
        low, middle, high = statistics.quantiles([second / first for first, second in each], n=4)
        seconds = [statistics.median(column) for column in zip(*each, strict=True)]
        found[f"p{percentile}"] = {"ratio": middle, "quartiles": [low, high], "seconds": seconds}
    return found


def planned(mod: IRModule, program: uc.Program) -> list[Workload]:
    """What is asked for the kernels of a plan; kernels that were made from others are left out."""
    with uc.host_target():
        for step in Pipeline(backends=tuple(kernel_backends())).until_candidates():
            mod = step(mod)
        asked = workloads(mod["main"], MeasuredCost())
    chosen = [asked[k.candidate] for k in (program.plan or {})["main"].kernels if k.candidate in asked]
    return list({each.key: each for each in chosen}.values())


def repeated(asked: Sequence[Workload], folder: Path, repeats: int) -> list[dict[str, Cost]]:
    """Each kernel measured anew as often as asked."""
    found: list[dict[str, Cost]] = []
    for number in range(repeats):
        with uc.host_target(), MeasuredCost(CostDatabase(folder / f"{number}.db"), packs=False) as model:
            found.append(model.costs(asked))
    return found


def held(found: Sequence[dict[str, Cost]]) -> dict[str, float]:
    """How often intervals contain the median of all measurements, the same without the speed of the machine, and how
    often another measurement.

    The speed of a turn is the median over the kernels of a cost in this turn over the median of its costs.
    """
    sure = [
        {key: cost for key, cost in costs.items() if cost.seconds and not cost.is_doubtful} for costs in found
    ]
    middles = {
        key: statistics.median(costs[key].seconds or 0.0 for costs in sure if key in costs)
        for key in {key for costs in sure for key in costs}
    }
    truth, apart, following, widths = [], [], [], []
    for turn, costs in enumerate(sure):
        if not costs:
            continue
        speed = statistics.median((cost.seconds or 0.0) / middles[key] for key, cost in costs.items())
        for key, cost in costs.items():
            truth.append(cost.low <= middles[key] <= cost.high)
            apart.append(cost.low <= middles[key] * speed <= cost.high)
            widths.append((cost.high - cost.low) / 2 / (cost.seconds or 1.0))
            others = [other[key].seconds or 0.0 for other in sure[:turn] + sure[turn + 1 :] if key in other]
            following += [cost.low <= each <= cost.high for each in others]
    return {
        "kernels": len(middles),
        "truth": statistics.mean(truth),
        "apart": statistics.mean(apart),
        "next": statistics.mean(following),
        "half_width": statistics.median(widths),
    }


def figures(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Both figures of one network."""
    mod = import_model(networks.load(name)).mod
    with Scratch("percentiles") as folder:
        pair = programs(mod, Path(folder), options.percentile, options.budget)
        row = compared(pair, random_inputs(mod["main"]), options.rounds)
        row["same_plan"] = (
            len({str([(k.backend, k.label) for k in (p.plan or {})["main"].kernels]) for p in pair}) == 1
        )
        asked = planned(mod, pair[0])
        row["intervals"] = held(repeated(asked, Path(folder), options.repeats))
    return row


def table(found: dict[str, dict[str, Any]]) -> Table:
    """A row for each network."""
    made = Table(
        "network", "plans", "p50", "p90", "kernels", "truth", "apart", "next", "half width", box=None
    )
    for name, row in found.items():
        ratios = [
            f"{row[each]['ratio']:.2f} ({row[each]['quartiles'][0]:.2f}-{row[each]['quartiles'][1]:.2f})"
            for each in ("p50", "p90")
        ]
        own = row["intervals"]
        parts = [f"{own[each]:.0%}" for each in ("truth", "apart", "next")]
        width = f"{own['half_width']:.1%}"
        made.add_row(name, "one" if row["same_plan"] else "two", *ratios, str(own["kernels"]), *parts, width)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), metavar="NAME")
    parser.add_argument("--percentile", type=float, default=90.0)
    parser.add_argument(
        "--budget", type=float, default=60.0, help="seconds of measuring kernels, for each plan"
    )
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    stored = options.json
    found: dict[str, Any] = json.loads(stored.read_text()) if stored and stored.exists() else {}
    for name in options.networks:
        if name not in found:
            found[name] = figures(name, options)
            print(name, found[name], flush=True)
            if stored:
                stored.write_text(json.dumps(found, indent=1) + "\n")
    Console(width=140).print(table(found))


if __name__ == "__main__":
    main()
