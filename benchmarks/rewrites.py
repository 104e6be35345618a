"""What the rewrites that no cost decides are worth: whole programs with and without each of them.

    python benchmarks/rewrites.py [NAME ...] [--rewrites StackProducts ...] [--budget 40] [--rounds 15] [--json FILE]

``StackProducts``, ``ExpandTransposed`` and ``ChannelsLast`` run on every model. For each network that one changes, two
programs are compiled with the same database, and timed in turns: that of all passes, and that without the rewrite.
*Ratio* is the time without it over the time with it (median and quartiles of the rounds). A rewrite loses where the
upper quartile is below 1, and the last line names the networks. Rows that FILE has are not measured again.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import networks
import tvm
import tvm_ffi
from layouts import seconds_of
from result_file import ResultFile, Row
from rich.console import Console
from rich.table import Table
from tvm.ir import IRModule
from zoo import kernel_backends

import unity_collage as uc
from unity_collage.compiler import compile_with
from unity_collage.database.costs import CostDatabase
from unity_collage.frontend.models import import_model
from unity_collage.measure.inputs import random_inputs
from unity_collage.measure.measured import MeasuredCost
from unity_collage.pipeline import Pipeline
from unity_collage.scratch import Scratch

REWRITES = ("StackProducts", "ExpandTransposed", "ChannelsLast")


def is_named(step: tvm.transform.Pass, name: str) -> bool:
    """Whether a pass is the one of this package with that name."""
    return str(step.info.name) == f"collage.{name}"


def changes(rewrite: str, mod: IRModule) -> bool:
    """Whether the rewrite does anything where it stands in the pipeline."""
    steps = Pipeline(backends=tuple(kernel_backends())).until_candidates()
    at = next(number for number, step in enumerate(steps) if is_named(step, rewrite))
    with uc.host_target():
        before = tvm.transform.Sequential(steps[:at])(mod)
        return not tvm_ffi.structural_equal(before, steps[at](before))


def compiled(mod: IRModule, database: CostDatabase, budget: float, without: str) -> uc.Program:
    """The program of the searched plan, ``without`` one rewrite."""
    costs = MeasuredCost(database, budget_seconds=budget, packs=False)
    with costs:
        passes = Pipeline(backends=tuple(kernel_backends()), model=costs).passes()
        kept = [step for step in passes if not is_named(step, without)]
        return compile_with(tvm.transform.Sequential(kept, name="collage"), mod)


def figures(name: str, rewrite: str, options: argparse.Namespace) -> Row:
    """The ratio of a network's two programs, and the seconds of both; none where the rewrite changes nothing."""
    mod = import_model(networks.load(name)).mod
    if not changes(rewrite, mod):
        return {"changes": False}
    with Scratch("rewrites") as folder:
        database = CostDatabase(Path(folder) / "costs.db")
        for without in ("", rewrite):  # both know the costs of both
            compiled(mod, database, options.budget, without)
        programs = [compiled(mod, database, options.budget, without) for without in ("", rewrite)]
    inputs = random_inputs(mod["main"])
    times = [
        dict(
            sorted((at, seconds_of(programs[at], inputs)) for at in ((0, 1) if turn % 2 else (1, 0)))
        ).values()
        for turn in range(options.rounds)
    ]
    low, middle, high = statistics.quantiles([without / used for used, without in times], n=4)
    used, without = (statistics.median(column) for column in zip(*times, strict=True))
    return {
        "changes": True,
        "ratio": middle,
        "quartiles": [low, high],
        "seconds": used,
        "seconds_without": without,
    }


def table(found: dict[str, Row]) -> Table:
    """A row for each network and rewrite that changes it, and the networks where a rewrite loses."""
    made = Table("rewrite", "network", "ms with", "ms without", "ratio", box=None)
    changed = {key: row for key, row in found.items() if row["changes"]}
    for key, row in changed.items():
        low, high = row["quartiles"]
        times = (f"{row[each] * 1e3:.2f}" for each in ("seconds", "seconds_without"))
        made.add_row(*key.split(" "), *times, f"{row['ratio']:.2f} ({low:.2f}-{high:.2f})")
    lost = [key for key, row in changed.items() if row["quartiles"][1] < 1]
    made.caption = f"{len(found)} looked at, {len(changed)} changed; loses: {', '.join(lost) or 'none'}"
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    everything = [*networks.names(unseen=False), *networks.names(unseen=True)]
    parser.add_argument("networks", nargs="*", default=everything, metavar="NAME")
    parser.add_argument("--rewrites", nargs="+", choices=REWRITES, default=list(REWRITES))
    parser.add_argument(
        "--budget", type=float, default=40.0, help="seconds of measuring kernels, for each program"
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    asked = {
        f"{rewrite} {name}": (name, rewrite) for rewrite in options.rewrites for name in options.networks
    }
    results = ResultFile(options.json, options)
    is_complete = results.fill(asked, lambda key: figures(*asked[key], options))
    Console(width=140).print(table(results.rows))
    sys.exit(not is_complete)


if __name__ == "__main__":
    main()
