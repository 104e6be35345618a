"""Operators of PyTorch with torch's own sample inputs through ``compile``: passed, refused, wrong, crashed.

    python benchmarks/torch_suite.py [--only REGEX] [--dtypes NAME ...] [--samples N] [--backends NAME ...]

Needs torch and expecttest. The cases are those of ``op_db`` in torch's tests: each operator, in each variant and dtype,
with up to N of its sample inputs. With ``--kind reference`` they are its reference inputs, which have NaN, infinities
and more shapes. A module calls the operator with each sample, whose tensors are its inputs; if it does not pass, each
sample is a module. What eager does not take, and what ``torch.export`` does not take, is counted and is no fault of
ours. A result is wrong if its shape or dtype is another than eager's, or if it is not close to eager's by torch's own
tolerances of the dtype, ten times wider; NaN and infinities have to be the same ones. Random operators are compared by
shape and dtype. Nothing is measured: kernels are chosen by rule. Cases that the file has are not run again, but for
``--again OUTCOME ...``. The exit code is 1 if a sample is wrong or crashes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from case_runner import CaseRunner

PASSED, REFUSED, WRONG, CRASHED = "passed", "refused", "wrong", "crashed"
EAGER, EXPORT = "not by eager", "not exported"
OUTCOMES = (PASSED, REFUSED, WRONG, CRASHED, EAGER, EXPORT)
SECONDS = 300.0
"""The limit for the samples of one operator; an operator that needs longer counts as crashed."""
WIDER = 10
"""How many times torch's tolerances for the results of one operator ours are: torch compares kernels of its own."""
TIES = re.compile(r"^(argsort|sort|topk)/(?!float32|float64)")
"""Cases in which many elements are equal: torch does not keep their order."""
UNDEFINED = re.compile(r"^(new_)?empty|^resize_|^jiterator|_quantize|^to_sparse|^sparse\.")
"""Operators whose results are undefined, that need a GPU, or that are about sparse tensors."""

Row = dict[str, Any]
"""Outcomes of an operator: how often each came, and the reasons for those that are not passed."""


@cache
def _operators() -> dict[str, Any]:
    """The operators of torch's tests by name, with that of the variant."""
    from torch.testing._internal.common_methods_invocations import op_db

    named = {f"{each.name}.{each.variant_test_name}".rstrip("."): each for each in op_db}
    return {name: each for name, each in sorted(named.items()) if not UNDEFINED.search(name)}


def _case_names(dtypes: Sequence[str]) -> list[str]:
    import torch

    names = [
        f"{name}/{dtype}"
        for name, operator in _operators().items()
        for dtype in dtypes
        if getattr(torch, dtype) in operator.dtypes
    ]
    return [name for name in names if not TIES.search(name)]


@contextmanager
def _judge(kind: str, most: int, backends: Sequence[str]) -> Iterator[Callable[[str], Row]]:
    import torch

    torch.set_num_threads(1)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield lambda name: _row(name, kind, most, backends)


def _row(name: str, kind: str, most: int, backends: Sequence[str]) -> Row:
    import torch

    operator, _, dtype = name.rpartition("/")
    opinfo = _operators()[operator]
    torch.manual_seed(0)
    samples = list(getattr(opinfo, f"{kind}_inputs")("cpu", getattr(torch, dtype), requires_grad=False))
    step = max(len(samples) / most, 1)
    chosen = [samples[int(i * step)] for i in range(min(most, len(samples)))]
    calls = [call for sample in chosen if (call := _call(opinfo.op, sample))]
    if len(calls) > 1 and _verdict(calls, backends)[0] == PASSED:
        verdicts = [(PASSED, "")] * len(calls)
    else:  # one by one
        verdicts = [_verdict([call], backends) for call in calls]
    found = Counter(outcome for outcome, _ in verdicts)
    found[EAGER] += len(chosen) - len(calls)
    reasons: dict[str, str] = {}
    for outcome, reason in verdicts:
        if outcome != PASSED:
            reasons.setdefault(outcome, reason)
    return {"outcomes": dict(+found), "reasons": reasons}


def _verdict(calls: Sequence[_Call], backends: Sequence[str]) -> tuple[str, str]:
    """The outcome of a module that makes all of these calls, and why."""
    import torch

    import unity_collage as uc

    inputs = [value.clone() for call in calls for value in call.inputs]
    try:
        exported = torch.export.export(_module(calls), tuple(inputs))
    except Exception as error:
        return EXPORT, _line(error)
    try:
        program = uc.compile(exported, backends=list(backends), measure=False)
    except uc.CollageError as error:
        return REFUSED, _line(error)
    except Exception as error:
        return CRASHED, _line(error)
    try:
        results = _results(program(*inputs))
    except Exception as error:
        return CRASHED, _line(error)
    is_random = torch.Tag.nondeterministic_seeded in _tags(exported)
    wanted = [value for call in calls for value in call.wanted]
    reason = _why_wrong(results, wanted, is_random)
    return (WRONG, reason) if reason else (PASSED, "")


def _results(result: Any) -> list[Any]:
    """The tensors of a program's result."""
    import torch

    if hasattr(result, "__dlpack__"):
        return [torch.from_dlpack(result)]
    return [tensor for part in result for tensor in _results(part)]


def _tags(exported: Any) -> set[Any]:
    """The tags of the operators of an exported program."""
    return {tag for node in exported.graph.nodes for tag in getattr(node.target, "tags", ())}


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a function with a sample's arguments, whose tensors are inputs."""

    function: Callable[..., Any]
    leaves: Sequence[Any]
    spec: Any
    places: Sequence[int]
    """Which leaves are tensors."""
    wanted: Sequence[Any]
    """Eager's results."""

    @property
    def inputs(self) -> list[Any]:
        return [self.leaves[place].detach() for place in self.places]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        from torch.utils import _pytree as pytree

        given = list(self.leaves)
        for place, value in zip(self.places, inputs, strict=True):
            given[place] = value
        first, args, kwargs = pytree.tree_unflatten(given, self.spec)
        return _tensors(self.function(first, *args, **kwargs))


def _call(function: Callable[..., Any], sample: Any) -> _Call | None:
    """The call of a sample; None if eager cannot, or if no tensor goes in or comes out."""
    import torch
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [number for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    call = _Call(function, leaves, spec, places, ())
    try:
        wanted = call([value.clone() for value in call.inputs])
    except Exception:
        return None
    return replace(call, wanted=wanted) if places and wanted else None


def _module(calls: Sequence[_Call]) -> Any:
    """A module whose inputs are those of the calls, and whose results are theirs."""
    import torch

    class Together(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            given = iter(inputs)
            return tuple(result for call in calls for result in call([next(given) for _ in call.places]))

    return Together().eval()


def _tensors(results: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]


def _why_wrong(results: Sequence[Any], wanted: Sequence[Any], is_random: bool) -> str:
    """Why results are not eager's; empty where they are."""
    import torch
    from torch.testing._comparison import default_tolerances

    if len(results) != len(wanted):
        return f"{len(results)} results instead of {len(wanted)}"
    for ours, theirs in zip(results, wanted, strict=True):
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return f"{ours.dtype}{list(ours.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
        if is_random:
            continue
        rtol, atol = (WIDER * each for each in default_tolerances(theirs.dtype))
        if theirs.is_floating_point():  # sums cancel: what is left is as uncertain as the largest numbers
            finite = theirs[theirs.isfinite()].abs()
            atol = max(atol, rtol * float(finite.max())) if finite.numel() else atol
        try:
            torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            return " ".join(str(error).split())[:300]
    return ""


def _line(error: Exception) -> str:
    from unity_collage.errors import first_line

    return f"{type(error).__name__}: {first_line(error)}"[:300]


def table(found: Mapping[str, Row]) -> str:
    """Outcomes by case: a line for each that has not passed everywhere, and the sums of samples."""
    total = Counter[str]()
    rows: list[tuple[str, ...]] = [("operator", *OUTCOMES)]
    for name, row in sorted(found.items()):
        total.update(row["outcomes"])
        if set(row["outcomes"]) - {PASSED}:
            rows.append((name, *(str(row["outcomes"].get(outcome, "")) for outcome in OUTCOMES)))
    rows.append(("all", *(str(total[outcome]) for outcome in OUTCOMES)))
    return "\n".join(f"{row[0]:48}" + "".join(f"{cell:>14}" for cell in row[1:]) for row in rows)


def main() -> None:
    """Run the selected cases, print the table, and keep the rows."""
    parser = argparse.ArgumentParser(
        description="Operators of PyTorch with torch's sample inputs, through compile."
    )
    parser.add_argument("--only", default="", help="a regular expression that the case's name contains")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "int64", "bool"], metavar="NAME")
    parser.add_argument(
        "--kind", default="sample", choices=["sample", "reference"], help="which of torch's inputs"
    )
    parser.add_argument("--samples", type=int, default=5, help="of an operator, at most")
    parser.add_argument("--backends", nargs="+", default=["tvm"], metavar="NAME")
    parser.add_argument(
        "--json", type=Path, default="benchmarks/results/torch_suite.json", help="where rows are kept"
    )
    parser.add_argument(
        "--again", nargs="+", default=[], choices=OUTCOMES, help="run cases with these once more"
    )
    options = parser.parse_args()
    known: dict[str, Row] = json.loads(options.json.read_text()) if options.json.exists() else {}
    runner = CaseRunner(_judge, _crashed, SECONDS, options.kind, options.samples, options.backends)
    asked = [name for name in _case_names(options.dtypes) if re.search(options.only, name)]
    try:
        for number, name in enumerate(asked, 1):
            if name in known and not set(known[name]["outcomes"]) & set(options.again):
                continue
            known[name] = row = runner.run(name)
            _keep(options.json, known)
            why = "; ".join(f"{outcome}: {reason}" for outcome, reason in row["reasons"].items())
            print(f"{number}/{len(asked)} {name} {row['outcomes']} {why}", flush=True)
    finally:
        runner.close()
    shown = {name: known[name] for name in asked if name in known}
    print(table(shown))
    sys.exit(any({WRONG, CRASHED} & set(row["outcomes"]) for row in shown.values()))


def _crashed(_: str, reason: str) -> Row:
    return {"outcomes": {CRASHED: 1}, "reasons": {CRASHED: reason}}


def _keep(path: Path, known: Mapping[str, Row]) -> None:
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(known.items()))
    path.write_text(f"{{\n{lines}\n}}\n")  # a line a case, to compare runs


if __name__ == "__main__":
    main()
