"""How many candidates a lazy search has to measure: counts, and the plan against that of all costs.

    python benchmarks/lazy.py [--database costs.sqlite] [MODEL ...]

All costs are measured or taken from the database first; the lazy search then asks for them one by one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import zoo_models as models
from tvm import relax
from tvm.ir import IRModule

from unity_collage.annotations import CANDIDATES, COSTS
from unity_collage.cost.asking import workloads
from unity_collage.database.costs import CostDatabase
from unity_collage.frontend.models import import_model
from unity_collage.graph import DataflowGraph
from unity_collage.measure.measured import MeasuredCost
from unity_collage.passes import EstimateCosts
from unity_collage.pipeline import Pipeline
from unity_collage.plan.costs import Cost, Costs
from unity_collage.plan.problem import problem_of
from unity_collage.search import NoCover, Problem, cheapest_cover
from unity_collage.search.lazy import Answer, LazySearch, LazySolution
from unity_collage.target import host_target

MODELS = ("mnist_mlp", "squeezenet", "mobilenetv2_100", "resnet50")


@dataclass(frozen=True)
class Eager:
    """A function with all costs, and their bounds."""

    graph: DataflowGraph
    costs: Costs
    bounds: Mapping[str, float]

    @property
    def truth(self) -> dict[str, Answer]:
        return {key: c.reason if c.seconds is None else c.seconds for key, c in self.costs.by_key.items()}

    def problem(self, answers: Mapping[str, Answer]) -> Problem:
        known = {key: _cost(answer) for key, answer in answers.items()}
        costs = Costs(known, self.costs.keys, self.costs.launch_seconds)
        return problem_of(self.graph, CANDIDATES.read(self.graph.func), costs)

    def lazy(self, assume_fusion_pays: bool) -> LazySolution:
        def measure(keys: Sequence[str]) -> dict[str, Answer]:
            return {key: self.truth[key] for key in keys}

        return LazySearch(
            self.costs.keys, self.bounds, self.problem, measure, assume_fusion_pays=assume_fusion_pays
        ).run()

    def ratios(self) -> list[float]:
        """Cost over bound of each kernel that has one."""
        truth = self.truth
        return [
            answer / self.bounds[key]
            for key, answer in truth.items()
            if not isinstance(answer, str) and self.bounds[key]
        ]


def _cost(answer: Answer) -> Cost:
    return Cost(None, reason=answer) if isinstance(answer, str) else Cost(answer)


def eager(name: str, model: MeasuredCost) -> Eager:
    """Everything of ``main`` in the zoo's model ``name`` measured."""
    mod: IRModule = import_model(models.load(name)).mod
    with host_target():
        for step in (*Pipeline(model=model).until_candidates(), EstimateCosts(model)):
            mod = step(mod)
        func = mod["main"]
        assert isinstance(func, relax.Function)
        bounds = model.lower_bounds(list(workloads(func, model).values()))
    return Eager(DataflowGraph(func), COSTS.read(func), bounds)


def row(name: str, found: Eager) -> str:
    """One line of the table."""
    optimum = cheapest_cover(found.problem(found.truth)).seconds
    ratios = found.ratios()
    cells = [f"{name:24s} {len(found.costs.keys):10d} {len(found.costs.by_key):9d}"]
    for assumed in (False, True):
        lazy = found.lazy(assumed)
        more = lazy.solution.seconds / optimum - 1
        cells.append(f"{len(lazy.answers):8d} {lazy.rounds:6d} {more:+8.2%} {lazy.solution.gap:6.1%}")
    cells.append(f"{min(ratios):6.2f} {statistics.median(ratios):6.2f}")
    return " | ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--database", help="where costs are kept; default: the user's cache")
    parser.add_argument("models", nargs="*", default=MODELS)
    options = parser.parse_args()
    lazy = f"{'measured':>8s} {'rounds':>6s} {'plan':>8s} {'gap':>6s}"
    sys.stdout.write(f"{'model':24s} candidates workloads | {lazy} | {lazy} | cost/bound: least, median\n")
    sys.stdout.write(f"{'':46s} | {'proved':31s} | {'assuming that fusion pays':31s} |\n")
    with CostDatabase(options.database) as database:
        for name in options.models:
            try:
                sys.stdout.write(row(name, eager(name, MeasuredCost(database))) + "\n")
            except NoCover as error:
                sys.stdout.write(f"{name:24s} {error}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
