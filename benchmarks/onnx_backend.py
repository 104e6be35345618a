"""The whole backend suite of the onnx package through ``compile``: passed, refused, wrong, crashed.

    python benchmarks/onnx_backend.py [--only REGEX] [--backends NAME ...] [--json FILE] [--again OUTCOME ...]

Needs onnx==1.23.2: the figures are of its suite. Each case is compiled with 3 s for measuring, run, and compared by
its own tolerances. If it misses them, it still passes if it is nearer to the results in double precision than the
expected numbers are; these cases are counted. Cases that the file has are not run again, so a stopped run can be
continued; ``--again wrong crashed`` runs cases with such an outcome once more. The exit code is 1 if a case is wrong
or crashes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import onnx
from case_runner import CaseRunner
from onnx_suite.cases import Case, cases, operators, why_excluded
from onnx_suite.verdict import CRASHED, NEARER, PASSED, REFUSED, WRONG, Verdict, verdict

VERSION = "1.23.2"
OUTCOMES = (PASSED, REFUSED, WRONG, CRASHED)
SECONDS = 300.0
"""The limit for one case; a case that needs longer counts as crashed."""
BUDGET_SECONDS = 3.0
"""The budget for measuring of a case."""


@contextmanager
def _judge(backends: Sequence[str] | None, database: str | None) -> Iterator[Callable[[str], Verdict]]:
    from unity_collage.database.costs import CostDatabase
    from unity_collage.measure.measured import MeasuredCost

    known = _cases()
    with CostDatabase(database) as opened, MeasuredCost(opened) as model:
        yield lambda name: verdict(known[name], replace(model, budget_seconds=BUDGET_SECONDS), backends)


def _crashed(name: str, reason: str) -> Verdict:
    case = _cases()[name]
    return Verdict(case.name, case.kind, tuple(operators(case)), CRASHED, reason)


@cache
def _cases() -> dict[str, Case]:
    return {case.name: case for case in cases()}


def table(verdicts: Iterable[Verdict]) -> str:
    """Outcomes by operator: a line for each that has not passed everywhere, and the sums."""
    by_operator: dict[str, Counter[str]] = defaultdict(Counter)
    for found in verdicts:
        for operator in found.operators if len(found.operators) == 1 else ("(several)",):
            by_operator[operator][found.outcome] += 1
    total = Counter(found.outcome for found in verdicts)
    rows: list[tuple[str, ...]] = [("operator", *OUTCOMES)]
    for operator, counts in sorted(by_operator.items()):
        if set(counts) != {PASSED}:
            rows.append((operator, *(str(counts[outcome] or "") for outcome in OUTCOMES)))
    rows.append(("all", *(str(total[outcome]) for outcome in OUTCOMES)))
    return "\n".join(f"{row[0]:32}" + "".join(f"{cell:>9}" for cell in row[1:]) for row in rows)


def summary(verdicts: Sequence[Verdict], excluded: Set[str]) -> str:
    """The share of the cases that have to pass: all except those in ``excluded``, which may be refused."""
    needed = [found for found in verdicts if found.name not in excluded]
    passed = [found for found in needed if found.outcome == PASSED]
    nearer = sum(found.reason == NEARER for found in passed)
    share = f"{len(passed) / max(len(needed), 1):.1%}"
    return "\n".join(
        [
            f"{len(passed)} of {len(needed)} pass that may not be refused: {share}",
            f"{nearer} of these are {NEARER}",
        ]
    )


def main() -> None:
    """Run the selected cases, print the table, and keep the verdicts."""
    parser = argparse.ArgumentParser(description="The backend suite of the onnx package through compile.")
    parser.add_argument("--only", default="", help="a regular expression that the case's name contains")
    parser.add_argument("--backends", nargs="+", help="force these backends")
    parser.add_argument("--database", help="the database of costs (default: one of your own)")
    parser.add_argument(
        "--json", default="benchmarks/results/onnx_backend.json", help="where verdicts are kept"
    )
    parser.add_argument("--again", nargs="+", default=[], choices=OUTCOMES, help="run these once more")
    options = parser.parse_args()
    if onnx.__version__ != VERSION:
        sys.exit(
            f"the suite is that of onnx {VERSION}, and {onnx.__version__} is installed: pip install onnx=={VERSION}"
        )
    path = Path(options.json)
    kept = json.loads(path.read_text())["cases"] if path.exists() else {}
    known = {name: Verdict(name, **{**c, "operators": tuple(c["operators"])}) for name, c in kept.items()}
    asked = [case for case in _cases().values() if re.search(options.only, case.name)]
    runner = CaseRunner(_judge, _crashed, SECONDS, options.backends, options.database)
    try:
        for number, case in enumerate(asked, 1):
            if case.name in known and known[case.name].outcome not in options.again:
                continue
            known[case.name] = found = runner.run(case.name)
            print(f"{number}/{len(asked)} {found.outcome:8} {case.name} {found.reason}", flush=True)
            _keep(path, known)
    finally:
        runner.close()
    verdicts = [known[case.name] for case in asked if case.name in known]
    print(table(verdicts), summary(verdicts, {case.name for case in asked if why_excluded(case)}), sep="\n")
    sys.exit(any(found.outcome in (WRONG, CRASHED) for found in verdicts))


def _keep(path: Path, known: dict[str, Verdict]) -> None:
    rows = {
        name: {k: v for k, v in asdict(found).items() if k != "name"} for name, found in sorted(known.items())
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    path.write_text(f'{{"onnx": "{VERSION}", "cases": {{\n{lines}\n}}}}\n')  # a line a case, to compare runs


if __name__ == "__main__":
    main()
