"""The networks of the Collage paper, as planned by each strategy: whole programs, timed in turns in one run.

    python benchmarks/strategies.py [NAME ...] [--budget 60] [--breed 60] [--database FILE] [--json FILE]

The strategies choose among the same candidates, with the same costs: each backend alone, greedy (what is preferred by
the order of the backends, as large as it goes), the exact search, the exact search with costs from the running
programs (*exact + recheck*), and evolution from the exact plan on, whose fitness is the time of the program. Stock TVM
is its own pipeline. Only backends that make kernels take part. Two strategies with the same plan have one program: it
stands in the first column that has it, and the others are empty.

A row takes the budget, the time of breeding, and the time for building and timing about ten programs. Rows that FILE
has are not measured again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import networks
from result_file import ResultFile, Row
from rich.console import Console
from rich.table import Table
from zoo import kernel_backends

import unity_collage as uc
from unity_collage import Refinement
from unity_collage.feedback import Breeding
from unity_collage.measure.measured import MeasuredCost
from unity_collage.report import duration

NETWORKS = (
    "bert_base_128", "dcgan", "inception_v1", "mobilenetv2_100", "nasnet_a_mobile", "nasrnn", "resnet50",
    "resnext50_32x4d",
)  # fmt: skip
INFORMED = "collage, informed"
TITLES = {"collage": "exact", INFORMED: "exact + recheck", "collage, bred": "evolution"}


class KernelBudget(MeasuredCost):
    """Costs with a budget for kernels alone, and without what the database knows of earlier comparisons of programs.

    The budget of a compile also counts the time for building programs. When it is spent, the recheck and the evolution
    are left out, and the row would lack them. The winner of an earlier comparison would take the place of a strategy
    with the same plan.
    """

    def is_budget_spent(self) -> bool:
        return False

    def database_and_lock(self) -> tuple[uc.CostDatabase | None, bool]:
        return None, False


def figures(name: str, options: argparse.Namespace) -> Row:
    """The seconds of each strategy's program by the comparison's name, or why it has none."""
    breeding = Breeding(seconds=options.breed) if options.breed else None
    with KernelBudget(uc.CostDatabase(options.database), budget_seconds=options.budget, packs=False) as costs:
        program = uc.compile(
            networks.load(name),
            backends=kernel_backends(),
            estimator=costs,
            refine=Refinement(breeding=breeding),
        )
    compared = (program.plan or {})["main"].comparison
    assert compared is not None
    times = {each.name: each.seconds or each.reason for each in compared.programs}
    return {
        "winner": compared.winner,
        "programs": times,
        "timed": compared.created,
        "others": compared.others,
    }


def table(found: dict[str, Row]) -> Table:
    """A row for each network: the time of each program, and its ratio to that of the exact plan."""
    rows = {name: _by_strategy(row["programs"]) for name, row in found.items()}
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    made = Table("network", *(TITLES.get(name, name) for name in columns), "fastest", box=None)
    for network, row in rows.items():
        cells = [_cell(row.get(name), row.get("collage")) for name in columns]
        winner = _strategy(found[network]["winner"])
        made.add_row(network, *cells, TITLES.get(winner, winner))
    return made


def _strategy(program: str) -> str:
    """The strategy of a program: those of each round of the recheck are one."""
    return INFORMED if program.startswith(INFORMED) else program


def _by_strategy(programs: dict[str, float | str]) -> dict[str, float | str]:
    """The best seconds of each strategy, or why its last program has none."""
    best: dict[str, float | str] = {}
    for name, seconds in programs.items():
        before = best.get(_strategy(name))
        if not isinstance(before, float) or (isinstance(seconds, float) and seconds < before):
            best[_strategy(name)] = seconds
    return best


def _cell(seconds: float | str | None, exact: float | str | None) -> str:
    if not isinstance(seconds, float):
        return "" if seconds is None else "-"
    ratio = f" {seconds / exact:.2f}" if isinstance(exact, float) else ""
    return f"{duration(seconds)}{ratio}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), metavar="NAME")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of measuring kernels")
    parser.add_argument("--breed", type=float, default=60.0, help="seconds of breeding; 0: none")
    parser.add_argument("--database", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    results = ResultFile(options.json, options)
    is_complete = results.fill(options.networks, lambda name: figures(name, options))
    Console(width=180).print(table(results.rows))
    sys.exit(not is_complete)


if __name__ == "__main__":
    main()
