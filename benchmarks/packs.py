"""Leave one out: a model compiled in a new database with a pack of the costs of all other models.

usage: packs.py MODEL.onnx [MODEL.onnx ...] --databases FOLDER [--only NAME ...] [--with-itself] [--json FILE]

FOLDER has ``NAME.sqlite`` for each model; those that are missing are made by a compile without a limit. ``packed`` is
the compile with the pack, ``cold`` the same without one. The programs of the packed compile and of the compile
without a limit are timed in turns. The aim: a program within 2 % of the one with all costs measured, in less time
than a cold compile.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from model_files import Figures, command, compile_seconds, measure, parser, programs_in_turns
from rich.table import Table

from unity_collage.cost.fingerprint import cost_fingerprint
from unity_collage.cost.method import Method
from unity_collage.database.costs import CostDatabase
from unity_collage.database.packs import read
from unity_collage.measure.packed import stored_verdict
from unity_collage.scratch import Scratch
from unity_collage.target import host_target


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--databases", type=Path, required=True, metavar="FOLDER")
    options.add_argument("--only", nargs="+", metavar="NAME", help="leave out only these, one by one")
    options.add_argument("--with-itself", action="store_true", help="the pack also has the model's own costs")
    asked = options.parse_args()
    asked.every = asked.models
    with Scratch("packs") as unused:
        for model in asked.every:
            if not _database(asked, model).exists():
                compile_seconds(
                    model, _database(asked, model), Path(unused) / "full.so", "--no-packs", "--budget", "none"
                )
    asked.models = [model for model in asked.every if asked.only is None or model.stem in asked.only]
    measure(asked, measured, table)


def measured(model: Path, options: argparse.Namespace) -> Figures:
    """The figures of one model."""
    full = _database(options, model)
    others = [_database(options, other) for other in options.every if options.with_itself or other != model]
    with Scratch("packs") as name:
        folder = Path(name)
        pack, fresh = folder / "others.pack", folder / "fresh.sqlite"
        _pack(others, folder / "others.sqlite", pack)
        command("db", "import", "--pack", pack, "--database", fresh)
        files = {name: folder / f"{name}.so" for name in ("packed", "full")}
        row: Figures = {
            "packed": compile_seconds(model, fresh, files["packed"]),
            "cold": compile_seconds(model, folder / "cold.sqlite", folder / "cold.so", "--no-packs"),
            "KB": pack.stat().st_size / 1000,
            **_answered(pack, fresh, full),
        }
        compile_seconds(model, full, files["full"], "--no-packs", "--budget", "none")
        seconds = programs_in_turns(model, files, options.rounds)
    row["seconds"] = {name: statistics.median(rounds) for name, rounds in seconds.items()}
    pairs = zip(seconds["packed"], seconds["full"], strict=True)
    row["packed / full"] = statistics.median(one / other for one, other in pairs)
    return row


def table(found: Mapping[str, Figures]) -> Table:
    """A row for each model."""
    shown = Table("model", "pack", "has", "of", "measured", "sample", "packed", "cold", "packed / full")
    for name, row in found.items():
        shown.add_row(
            name,
            f"{row['KB']:.0f} KB",
            str(row["has"]),
            str(row["of"]),
            str(row["measured"]),
            row["sample"],
            f"{row['packed']:.1f} s",
            f"{row['cold']:.1f} s",
            f"{row['packed / full']:.3f}",
        )
    return shown


def _database(options: argparse.Namespace, model: Path) -> Path:
    return options.databases / f"{model.stem}.sqlite"


def _pack(databases: Sequence[Path], merged: Path, pack: Path) -> None:
    """Write a pack of all costs in ``databases``."""
    command("db", "merge", *databases, "--database", merged)
    command("db", "export", "--pack", pack, "--database", merged)


def _answered(pack: Path, fresh: Path, full: Path) -> Figures:
    """How many costs of the model are in the pack, how many were measured nevertheless, and the verdict on the pack."""
    packed = read(pack)
    in_pack = {key for costs in packed.entries.values() for key in costs}
    with CostDatabase(full, read_only=True) as database:
        keys = {cost.key for cost in database.costs()}
    with CostDatabase(fresh, read_only=True) as database:
        here = cost_fingerprint("tvm", host_target(), Method())
        verdict, count = stored_verdict(database, packed.name, here), len(database)
    sample = "none"
    if verdict is not None:
        used = "used" if verdict.why_not is None else "refused"
        sample = f"{used}, {verdict.ratio:.2f}x to {verdict.deviation:.0%}"
    return {"has": len(keys & in_pack), "of": len(keys), "measured": count, "sample": sample}


if __name__ == "__main__":
    main()
