"""Every ONNX file of a folder through ``compile``: passed, refused, wrong, crashed, or not judged.

    python benchmarks/onnx_files.py FOLDER [--only REGEX] [--backends NAME ...] [--json FILE] [--again OUTCOME ...]

For collections of small files, such as the tests of other projects. Inputs are drawn; sizes that a file leaves open
stay open when it is compiled, and are drawn when it is run. Results are compared with those of ONNX Runtime, with or
without its optimisations, or, for files that this does not run, of the evaluator in the ``onnx`` package: 1e-3 of the
range of a result is allowed, 2e-2 for numbers of 16 bits. A file that neither runs is compiled and run, and not judged.
Files that the JSON file has are not run again; ``--again wrong crashed`` runs those with such an outcome once more.
The exit code is 1 if a file is wrong or crashes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from case_runner import CaseRunner
from onnx.reference import ReferenceEvaluator
from onnx_suite.verdict import CRASHED, PASSED, REFUSED, WRONG, flat, kernel_backends, why_not_alike
from real_files import error

import unity_collage as uc
from unity_collage.cost.model import CostModel
from unity_collage.database.costs import CostDatabase
from unity_collage.errors import first_line
from unity_collage.measure.measured import MeasuredCost

NOT_JUDGED = "not judged"
OUTCOMES = (PASSED, REFUSED, WRONG, CRASHED, NOT_JUDGED)
SECONDS = 300.0
"""The limit for one file; a file that needs longer counts as crashed."""
BUDGET_SECONDS = 3.0
"""The budget for measuring of a file."""
SIZES = ((2, 3, 5, 7), (2,), (1,), (4,), (8, 16))
"""Sizes that are tried for open dimensions, in turns, until a file runs with them."""

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a file, and why."""

    name: str
    outcome: str
    reason: str = ""


class NotDrawn(Exception):
    """An input that cannot be drawn."""


def verdict(folder: Path, name: str, costs: CostModel, backends: Sequence[str] | None) -> Verdict:
    """Compile a file by ``costs``, run it, and compare its results."""
    path, found = folder / name, Verdict(name, PASSED)
    try:
        program = uc.compile(path, backends=backends or kernel_backends(), estimator=costs)
    except uc.CollageError as failure:
        return replace(found, outcome=REFUSED, reason=str(failure))
    except Exception as failure:
        return replace(found, outcome=CRASHED, reason=f"{type(failure).__name__}: {first_line(failure)}")
    try:
        model = onnx.load(path)
        feeds, expected = judged(path, model)
    except Exception as failure:
        return replace(found, outcome=NOT_JUDGED, reason=first_line(failure))
    try:
        results = flat(program(feeds))
    except Exception as failure:  # a program that was compiled has to run what a judge runs
        return replace(found, outcome=CRASHED, reason=f"{type(failure).__name__}: {first_line(failure)}")
    reasons = [why_not(results, each) for each in expected]
    return found if None in reasons else replace(found, outcome=WRONG, reason=str(reasons[0]))


def judged(path: Path, model: onnx.ModelProto) -> tuple[Feeds, list[list[np.ndarray]]]:
    """Inputs for a file, and the results of those that run it. Raises the last judge's error if none does."""
    failure: Exception = NotDrawn("no judge")
    for sizes, integers in itertools.product(SIZES, ((0, 2), (1, 2), (1, 4))):
        feeds = drawn(model, sizes, integers)
        expected = []
        for is_optimised in (True, False):
            try:
                expected.append(_by_onnxruntime(path, feeds, is_optimised))
            except Exception as refusal:
                failure = refusal
        if not expected:
            try:
                expected.append([np.asarray(each) for each in ReferenceEvaluator(model).run(None, feeds)])
            except Exception:
                continue
        return feeds, expected
    raise failure


def drawn(model: onnx.ModelProto, sizes: Sequence[int], integers: tuple[int, int]) -> Feeds:
    """Normally distributed floats and small integers; a dimension of one name has one size."""
    rng, turn = np.random.default_rng(0), itertools.cycle(sizes)
    weights = {tensor.name for tensor in model.graph.initializer}
    of_name: dict[str, int] = {}
    feeds: Feeds = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        if not value.type.HasField("tensor_type"):
            raise NotDrawn(f"the input {value.name} is not a tensor")
        tensor = value.type.tensor_type
        shape = [
            of_name.setdefault(dim.dim_param, next(turn))
            if dim.dim_param
            else (dim.dim_value if dim.dim_value > 0 else next(turn))
            for dim in tensor.shape.dim
        ]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind in "OUS":
            raise NotDrawn(f"the input {value.name} has strings")
        is_integer = dtype.kind in "biu"
        numbers = rng.integers(*integers, shape) if is_integer else rng.standard_normal(shape)
        feeds[value.name] = np.asarray(numbers).astype(dtype)
    return feeds


def _by_onnxruntime(path: Path, feeds: Feeds, is_optimised: bool) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if is_optimised else levels.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    model = onnx.load(path, load_external_data=False)
    source: str | bytes = str(path)
    named = {opset.domain for opset in model.opset_import}
    if "com.microsoft" not in named and any(node.domain == "com.microsoft" for node in model.graph.node):
        # Some files leave out the only version of these operators, without which ONNX Runtime reads no file.
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
        source = model.SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return [np.asarray(result) for result in session.run(None, feeds)]


def why_not(results: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> str | None:
    """Why results are not those of a judge; None where they are."""
    if (reason := why_not_alike(results, expected)) is not None:
        return reason
    for number, (got, want) in enumerate(zip(results, expected, strict=True)):
        allowed = 0.0 if want.dtype.kind in "biu" else 2e-2 if want.dtype.itemsize <= 2 else 1e-3
        if (off := error([got], [want])) > allowed:
            return f"result {number} is off by {off:.1e} of its range"
    return None


@contextmanager
def _judge(
    folder: Path, backends: Sequence[str] | None, database: str | None
) -> Iterator[Callable[[str], Verdict]]:
    with CostDatabase(database) as opened, MeasuredCost(opened) as model:
        costs = replace(model, budget_seconds=BUDGET_SECONDS)
        yield lambda name: verdict(folder, name, costs, backends)


def _crashed(name: str, reason: str) -> Verdict:
    return Verdict(name, CRASHED, reason)


def main() -> None:
    """Run the selected files, print the sums, and keep the verdicts."""
    parser = argparse.ArgumentParser(description="Every ONNX file of a folder through compile.")
    parser.add_argument("folder", type=Path, help="where the files are, or folders with them")
    parser.add_argument("--only", default="", help="a regular expression that the file's name contains")
    parser.add_argument("--backends", nargs="+", help="force these backends")
    parser.add_argument("--database", help="the database of costs (default: one of your own)")
    parser.add_argument("--json", type=Path, required=True, help="where verdicts are kept")
    parser.add_argument("--again", nargs="+", default=[], choices=OUTCOMES, help="run these once more")
    options = parser.parse_args()
    known: dict[str, Verdict] = {}
    if options.json.exists():
        known = {name: Verdict(name, **row) for name, row in json.loads(options.json.read_text()).items()}
    files = sorted(str(path.relative_to(options.folder)) for path in options.folder.rglob("*.onnx"))
    asked = [name for name in files if re.search(options.only, name)]
    runner = CaseRunner(_judge, _crashed, SECONDS, options.folder, options.backends, options.database)
    try:
        for number, name in enumerate(asked, 1):
            if name in known and known[name].outcome not in options.again:
                continue
            known[name] = found = runner.run(name)
            print(f"{number}/{len(asked)} {found.outcome:10} {name} {found.reason}", flush=True)
            _keep(options.json, known)
    finally:
        runner.close()
    counts = Counter(known[name].outcome for name in asked)
    print(*(f"{outcome:10} {counts[outcome]:6}" for outcome in OUTCOMES), sep="\n")
    sys.exit(bool(counts[WRONG] or counts[CRASHED]))


def _keep(path: Path, known: dict[str, Verdict]) -> None:
    rows = {
        name: {k: v for k, v in asdict(found).items() if k != "name"} for name, found in sorted(known.items())
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    path.write_text(f"{{\n{lines}\n}}\n")  # a line a file, to compare runs


if __name__ == "__main__":
    main()
