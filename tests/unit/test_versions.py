"""What is made of fixed graphs changes only together with the version that costs are kept under."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType

import pytest
import versions
from tvm import tirx
from tvm.ir import IRModule
from versions import Subject

import unity_collage.schedule as schedule
from unity_collage.graph import outside_vars
from unity_collage.schedule import gpu


def test_a_change_raises_the_version() -> None:
    recorded = versions.recorded()
    outdated = [
        versions.why_outdated(subject, recorded.get(subject.name, {})) for subject in versions.subjects()
    ]
    reasons = [reason for reason in outdated if reason is not None]
    assert not reasons, "\n".join(reasons)
    assert len(outdated) == len(recorded)


BEFORE = Subject("loops", 3, {"chain": "a", "softmax": "b"}, "LOOPS in loops.py")


@pytest.mark.parametrize(
    ("now", "outdated", "refused"),
    [
        (BEFORE, None, None),
        (
            replace(BEFORE, digests={"chain": "a", "softmax": "c"}),
            "of version 3 were recorded otherwise for: softmax. If that is on purpose, set LOOPS in loops.py to 4",
            "run `python tests/unit/versions.py`",
        ),
        (replace(BEFORE, version=4, digests={"chain": "a", "softmax": "c"}), "in another version: run", None),
        (replace(BEFORE, version=4), "in another version: run `python tests/unit/versions.py`", None),
        (replace(BEFORE, version=2), "of version 3 were recorded otherwise for: none", "to 4"),
        (replace(BEFORE, digests={**BEFORE.digests, "new": "d"}), "in another version: run", None),
        (replace(BEFORE, digests={"chain": "a"}), "in another version: run", None),
    ],
    ids=["same", "changed", "changed and raised", "raised alone", "lowered", "a new graph", "a graph less"],
)  # fmt: skip
def test_what_to_do(now: Subject, outdated: str | None, refused: str | None) -> None:
    before = versions.entry(BEFORE)
    for expected, said in (
        (outdated, versions.why_outdated(now, before)),
        (refused, versions.why_not_recorded(now, before)),
    ):
        assert said is None if expected is None else expected in (said or ""), said


def test_the_command_does_not_overwrite_what_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(versions, "RECORDED", tmp_path / "versions.json")
    monkeypatch.setattr(versions, "subjects", lambda: [BEFORE])
    assert versions.record() == 0
    assert versions.recorded() == {"loops": versions.entry(BEFORE)}
    changed = replace(BEFORE, digests={"chain": "a", "softmax": "c"})
    monkeypatch.setattr(versions, "subjects", lambda: [changed])
    assert versions.record() == 1
    assert "softmax" in capsys.readouterr().err
    assert versions.recorded() == {"loops": versions.entry(BEFORE)}
    monkeypatch.setattr(versions, "subjects", lambda: [replace(changed, version=4)])
    assert versions.record() == 0
    assert versions.recorded()["loops"]["version"] == 4


ELSEWHERE = {
    "tuned.py", "tensor_intrinsics.py", "vnni.py", "faults.py", "gpu.py", "gpu_reductions.py", "gpu_vectors.py",
    "gpu_vector_loops.py", "library_calls.py",
}  # fmt: skip
"""Schedules of a tuner, what becomes of exceptions, schedules for GPUs, which have digests of their own, and calls
between loops, which other files write."""
NEVER = {"_as_written", "_are_apart", "_starts_itself", "_quotient", "merit"}
"""Loops that no rule takes, and loops that only handwritten kernels have, which TVM does not make; a maker of formulas,
which is called while importing; and what compares layouts where kernels of one program share a constant, which changes
no kernel that is measured."""


def test_the_graphs_reach_all_functions_of_the_schedules() -> None:
    folder, called = Path(schedule.__file__).parent, set[tuple[str, str]]()

    def watch(frame: FrameType, _event: str, _argument: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(str(folder)):
            called.add((Path(code.co_filename).name, code.co_name))

    sys.setprofile(watch)
    try:
        versions.schedule_digests()
    finally:
        sys.setprofile(None)
    there = {
        (path.name, name)
        for path in folder.glob("*.py")
        if path.name not in ELSEWHERE
        for name in _functions(compile(path.read_text(), str(path), "exec"))
    }
    assert len(there) > 150
    assert {pair for pair in there - called if pair[1] not in NEVER} == set()


def _functions(code: CodeType) -> Iterator[str]:
    """The names of the functions and methods of a module."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and not inner.co_name.startswith("<"):
            if inner.co_flags & inspect.CO_OPTIMIZED:
                yield inner.co_name
            else:
                yield from _functions(inner)


CHANGES: list[tuple[str, str, int, str]] = [
    ("bands", "_MOST_BYTES", 1 << 12, "product of long rows that are computed"),
    ("injective", "PARALLEL_WORK", 1 << 30, "large sum"),
    ("inline", "_CHEAP_REUSE", 100, "quotients of rows"),
    ("inline", "_WINDOW", 8, "depthwise"),
    ("lanes", "_PARTIALS", 1, "sum of all"),
    ("packing", "_LEAST_REUSE", 1 << 30, "product of transposed"),
    ("packing", "_MOST_ELEMENTS", 1 << 30, "product of large transposed"),
    ("rows", "_VECTORS_OF_ROWS", 1, "softmax of columns"),
    ("segments", "_MAX_SEGMENTS", 5, "concat of many"),
    ("tiling", "STACK_BYTES", 1 << 8, "product"),
    ("transpose", "SIDE", 8, "transpose"),
    ("vectors", "_REGISTERS_A_TURN", 1, "chain"),
    ("weights", "_PANEL_REGISTERS", 2, "narrow packed weights of one row"),
]
"""Another value of each constant, and a graph that is another kernel by it."""


@pytest.mark.parametrize(("module", "name", "value", "graph"), CHANGES, ids=[change[1] for change in CHANGES])
def test_another_constant_is_another_digest(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str, value: int, graph: str
) -> None:
    before = versions.schedule_digests([graph])
    monkeypatch.setattr(f"unity_collage.schedule.{module}.{name}", value)
    assert versions.schedule_digests([graph]) != before


def test_another_rule_is_another_digest_of_schedules_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    before = versions.gpu_schedule_digests(["product"])
    monkeypatch.setattr("unity_collage.schedule.gpu._RULES", gpu._RULES[-1:])
    assert versions.gpu_schedule_digests(["product"]) != before


EXTRACT = sys.modules["unity_collage.graph.extract"]
"""The module: its package has a function of that name."""


def test_other_constants_inside_are_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = versions.extraction_digests()
    monkeypatch.setattr(EXTRACT, "SMALL_CONSTANT", 16)
    assert {name for name, digest in versions.extraction_digests().items() if digest != before[name]} == {
        "bound_constant"
    }


def test_another_order_of_parameters_is_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = versions.extraction_digests()
    monkeypatch.setattr(EXTRACT, "outside_vars", lambda sub: outside_vars(sub)[::-1])
    assert versions.extraction_digests()["two_branches_joining"] != before["two_branches_joining"]


def test_names_make_no_difference() -> None:
    one, other = (IRModule({name: _loop(name)}) for name in ("i", "j"))
    assert versions._kernels(one) == versions._kernels(other)


def _loop(name: str) -> tirx.PrimFunc:
    """A loop over a variable of that name."""
    buffer = tirx.decl_buffer((8,), "float32", name)
    var = tirx.Var(name, "int64")
    body = tirx.For(var, tirx.const(0, "int64"), tirx.const(8, "int64"), tirx.ForKind.SERIAL,
                    tirx.BufferStore(buffer, tirx.const(1.0), [var]))  # fmt: skip
    return tirx.PrimFunc([buffer], body)
