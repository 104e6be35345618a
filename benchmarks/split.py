"""The cost of a second device: networks that a hint splits over two CPUs, in turns with the same networks on one.

    python benchmarks/split.py [--models resnet50 bert_base_128] [--rounds 15] [--database FILE] [--json FILE]

The second half of a network is on ``cpu:1``. It begins where the fewest values cross. Of such places it is one where
they are read most often, since a cut before the only reader would divide a kernel, and nearest to the middle. Both
devices are the processor of this machine, so kernels are the same and copies give values a second name. *Copies* are
those of the module, one for each value that crosses. Both programs are saved and loaded before they run.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networks
import numpy as np
import tvm
import tvm_ffi
import zoo_models as models
from rich.console import Console
from rich.table import Table
from tvm import relax
from tvm.ir import IRModule

import unity_collage as uc
from unity_collage.frontend.models import import_model
from unity_collage.profile.peers.bench import interleaved
from unity_collage.profile.peers.runtime_process import RuntimeProcess
from unity_collage.profile.peers.runtimes import OURS
from unity_collage.scratch import Scratch

BACKENDS = ("kernels", "onednn", "openblas", "tvm")
"""Those of kernels: a runtime that takes the whole network has one device."""

SECONDS = 0.3
"""Of each program in each round."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = [*networks.names(unseen=False), *networks.names(unseen=True)]
    parser.add_argument(
        "--models", nargs="+", choices=every, default=["resnet50", "bert_base_128"], metavar="NAME"
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--database", metavar="FILE", help="where costs are kept (default: nowhere)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    with Scratch("split") as folder:
        database = uc.CostDatabase(options.database or Path(folder) / "costs.db")
        for name in options.models:
            rows[name] = row(name, database, options.rounds, Path(folder))
    table = Table("network", "crossing", "copies", "ms on one device", "ms on two", "ratio", "error")
    for name, found in rows.items():
        low, middle, high = found["ratio"]
        table.add_row(
            name,
            str(found["crossing"]),
            str(found["copies"]),
            *(f"{1e3 * statistics.median(found['seconds'][each]):.3f}" for each in ("one", "two")),
            f"{middle:.4f} ({low:.4f}-{high:.4f})",
            f"{found['error']:.1e}",
        )
    Console(width=140).print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def row(name: str, database: uc.CostDatabase, rounds: int, folder: Path) -> dict[str, Any]:
    """The figures of one network."""
    model = networks.load(name)
    feeds = models.inputs(model)
    mod = import_model(model).mod
    two, crossing = split(mod)
    paths = {"one": folder / f"{name}.one.so", "two": folder / f"{name}.two.so"}
    programs = {
        key: uc.compile(made, database=database, backends=BACKENDS, recompile=True)
        for key, made in (("one", mod), ("two", two))
    }
    for key, program in programs.items():
        program.save(paths[key])
    results = [uc.load(path)(*feeds.values()) for path in paths.values()]
    first, second = (np.asarray((each if isinstance(each, (list, tuple)) else [each])[0]) for each in results)
    running = {key: RuntimeProcess(OURS, path, feeds, uc.num_threads()) for key, path in paths.items()}
    seconds = interleaved(running, rounds, SECONDS)
    ratios = [b / a for a, b in zip(seconds["one"], seconds["two"], strict=True)]
    return {
        "crossing": crossing,
        "copies": copies(programs["two"]),
        "devices": list(programs["two"].devices),
        "seconds": seconds,
        "ratio": statistics.quantiles(ratios, n=4),
        "error": float(np.abs(first - second).max() / np.abs(first).max()),
    }


def split(mod: IRModule) -> tuple[IRModule, int]:
    """``mod`` with its second half on the device ``cpu:1``, and how many values cross."""
    main_function: Any = mod["main"]
    (block,) = main_function.body.blocks
    bindings = list(block.bindings)
    uses = Counter(var for binding in bindings for var in relax.analysis.free_vars(binding.value))
    middle = len(bindings) // 2

    def badness(place: tuple[int, list[relax.Var]]) -> tuple[int, int, int]:
        number, live = place
        return len(live), -sum(uses[var] for var in live), abs(number - middle)

    places = list(enumerate(_live(main_function, bindings)))
    at, crossing = min(places[middle // 2 : middle + middle // 2], key=badness)
    hinted = {var: relax.DataflowVar(f"{var.name}_there", var.ty) for var in crossing}
    hints = [
        relax.VarBinding(there, relax.op.hint_on_device(var, tvm.cpu(1))) for var, there in hinted.items()
    ]
    moved = [
        relax.VarBinding(
            each.var, tvm_ffi.structural_map(each.value, (relax.Var, lambda var: hinted.get(var, var)))
        )
        for each in bindings[at + 1 :]
    ]
    made = relax.DataflowBlock([*bindings[: at + 1], *hints, *moved])
    body = relax.SeqExpr([made], main_function.body.body)
    function = relax.Function(main_function.params, body, main_function.ret_ty, True, main_function.attrs)
    functions = {**dict(mod.functions_items()), mod.get_global_var("main"): function}
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos), len(hinted)


def _live(function: Any, bindings: list[relax.Binding]) -> Iterator[list[relax.Var]]:
    """Behind each binding, the parameters and variables that later ones read."""
    last: dict[relax.Var, int] = {}
    for number, binding in enumerate(bindings):
        for var in relax.analysis.free_vars(binding.value):
            last[var] = number
    known: list[relax.Var] = list(function.params)
    for number, binding in enumerate(bindings):
        known.append(binding.var)
        yield [var for var in known if last.get(var, -1) > number]


def copies(program: uc.Program) -> int:
    """How many copies between devices the module of a program has."""
    found: list[relax.Expr] = []
    assert program.mod is not None
    relax.analysis.post_order_visit(program.mod["main"].body, found.append)
    return sum(
        isinstance(each, relax.Call) and getattr(each.op, "name", "") == "relax.to_vdevice" for each in found
    )


if __name__ == "__main__":
    main()
