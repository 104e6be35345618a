"""The tables and plots that the documents show, made of ``results/``.

usage: figures.py [--check]

A table stands in ``README.md`` or ``docs/figures.md`` behind a line ``<!-- table: FILE.json -->`` (a row for each
model) or ``<!-- summary: FILE.json FILE.json ... -->`` (a row for each file) and ends at the next empty line.
``--check`` writes nothing, and fails where a document does not show what its results say. The plots are drawn again
each time.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import league
import plots
import roofline
from gpu import report

from unity_collage.profile.peers.runtimes import OURS
from unity_collage.report import duration

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "figures.md")
PLOTTED = "zoo_znver5"
PLOTTED_GPU = "gpu_h200"

_MARK = re.compile(r"(<!-- (table|summary): ([\w. ]+) -->\n\n)((?:\|.*\n)*)")
_NETWORKS = {"zoo": "model zoo", "unseen": "unseen networks"}
_MACHINES = {"znver4": "Zen 4", "znver5": "Zen 5"}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, fail where something differs")
    options = parser.parse_args(arguments)
    stale = [path for path in DOCUMENTS if path.read_text() != filled(path.read_text())]
    if options.check:
        for path in stale:
            print(f"{path.name} is not what results/ says: run python benchmarks/figures.py", file=sys.stderr)
        return bool(stale)
    for path in stale:
        path.write_text(filled(path.read_text()))
    plots.speedups(_known(f"{PLOTTED}.json"), str(ROOT / "docs" / f"{PLOTTED}.svg"))
    plots.roofs(_known(f"{PLOTTED}.json"), str(ROOT / "docs" / PLOTTED.replace("zoo", "roofline")) + ".svg")
    if reason := report.plot(_known(f"{PLOTTED_GPU}.json")["rows"], ROOT / "docs" / f"{PLOTTED_GPU}.svg"):
        print(f"no plot of {PLOTTED_GPU}: {reason}", file=sys.stderr)
        return 1
    return 0


def filled(text: str) -> str:
    """``text`` with its tables as ``results/`` has them."""

    def fill(found: re.Match[str]) -> str:
        mark, kind, files, _ = found.groups()
        rows = table(_known(files)) if kind == "table" else summary(files.split())
        return mark + "".join(f"| {' | '.join(row)} |\n" for row in rows)

    return _MARK.sub(fill, text)


def table(known: Mapping[str, Any]) -> list[list[str]]:
    """The results of one file, a row for each model: ours, the peers in multiples of it, the floor, a cold compile."""
    peers = league.peers_in(known)
    names = [league.title(peer) for peer in peers]
    head = ["model", "ours", *names, "best of them", "floor", "cold compile", "error", "exchange"]
    return [
        head,
        ["---", *["---:"] * (len(head) - 1)],
        *(_row(name, known, peers) for name in sorted(known["models"])),
    ]


def _row(name: str, known: Mapping[str, Any], peers: Sequence[str]) -> list[str]:
    row = known["models"][name]
    ratios = league.ratios_of(row, known["precision"])
    theirs = [f"{statistics.median(ratios[peer]):.2f}x" if peer in ratios else "" for peer in peers]
    best, error, exchanged = league.verdict(row, known["precision"])
    ours, floor = (
        duration(s) for s in (statistics.median(row["seconds"][OURS]), roofline.floor_of(row, known))
    )
    return [
        name,
        ours,
        *theirs,
        f"**{best.replace(' ', '** ', 1)}",
        floor,
        f"{row['compile_seconds']:.0f} s",
        error,
        exchanged,
    ]


def summary(files: Sequence[str]) -> list[list[str]]:
    """A row for each file: the geometric mean of the best peers over ours, the model with the least, and how many."""
    head = ["networks", "machine", "precision", "best peer / ours", "least", "1.10x or more"]
    return [head, ["---"] * 3 + ["---:"] * 3, *map(_together, files)]


def _together(file: str) -> list[str]:
    kind, machine, *_ = Path(file).stem.split("_")
    known = _known(file)
    medians = league.medians_of(known)
    least = min(medians, key=lambda name: medians[name])
    return [
        f"[{_NETWORKS[kind]}](benchmarks/results/{file})",
        _MACHINES[machine],
        known["precision"],
        f"**{league.geometric_mean(list(medians.values())):.2f}x**",
        f"{medians[least]:.2f}x ({least})",
        f"{sum(ratio >= 1.1 for ratio in medians.values())} of {len(medians)}",
    ]


def _known(file: str) -> dict[str, Any]:
    return json.loads((RESULTS / file).read_text())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
