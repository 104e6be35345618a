"""The gain of independent branches side by side: programs with and without ScheduleBranches, in turns.

    python benchmarks/branches.py [--models nasnet_a_mobile nasrnn] [--rounds 15] [--database FILE]

*Exchange* is how fast a core reads what another wrote (``exchange.py``), the median of the rounds: with cores that are
far apart, branches on a core each gain more.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import exchange
import networks
import tvm
import zoo_models as models
from rich.console import Console
from rich.table import Table

import unity_collage as uc
from unity_collage.compiler import compile_with
from unity_collage.database.costs import CostDatabase
from unity_collage.measure.measured import MeasuredCost
from unity_collage.pipeline import collage
from unity_collage.profile.peers.bench import interleaved
from unity_collage.profile.peers.runtime_process import RuntimeProcess
from unity_collage.profile.peers.runtimes import OURS
from unity_collage.scratch import Scratch

SECONDS = 0.2
"""Of each program in each round."""


def row(name: str, database: CostDatabase, rounds: int, folder: Path) -> list[str]:
    """Both programs of a network."""
    model = networks.load(name)
    feeds = models.inputs(model)
    paths = {"split": folder / f"{name}.split.so", "side by side": folder / f"{name}.so"}
    with MeasuredCost(database) as costs:
        passes = collage(model=costs)
        without = tvm.transform.Sequential(list(passes.passes)[:-1], name="split")
        compile_with(without, model).save(paths["split"])
        program = compile_with(passes, model)
        program.save(paths["side by side"])
    programs = {label: RuntimeProcess(OURS, path, feeds, uc.num_threads()) for label, path in paths.items()}
    speeds: list[float] = []
    seconds = interleaved(
        programs, rounds, SECONDS, before_round=lambda: speeds.append(exchange.bandwidth() or 0.0)
    )
    ratios = [b / a for a, b in zip(*seconds.values(), strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    branches = (program.plan or {})["main"].branches
    return [
        name,
        *(f"{statistics.median(times) * 1e3:.3f}" for times in seconds.values()),
        f"{middle:.3f} ({low:.3f}-{high:.3f})",
        "0 in 0" if branches is None else f"{branches.kernels} in {branches.stages}",
        f"{statistics.median(speeds) / 1e9:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    everything = [*networks.names(unseen=False), *networks.names(unseen=True)]
    default = ["nasnet_a_mobile", "nasrnn"]
    parser.add_argument("--models", nargs="+", choices=everything, default=default, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--database", metavar="FILE", help="where costs are kept (default: nowhere)")
    options = parser.parse_args()
    table = Table("network", "ms, split", "ms, side by side", "ratio", "kernels in stages", "exchange, GB/s")
    with Scratch("branches") as folder:
        database = CostDatabase(options.database or Path(folder) / "costs.db")
        for name in options.models:
            table.add_row(*row(name, database, options.rounds, Path(folder)))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
