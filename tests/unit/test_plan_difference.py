"""Two plans side by side: which kernels belong together, what has changed, and by how much."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import unity_collage as uc
from unity_collage.cli import diff as diff_command
from unity_collage.cli import main as cli
from unity_collage.cli.options import sizes_of
from unity_collage.errors import CollageError
from unity_collage.inspection.plan_diff import diff
from unity_collage.plan.difference import Change, PlanDifference, difference
from unity_collage.plan.encoding import encode
from unity_collage.plan.pairing import paired
from unity_collage.plan.plan import Plan, PlannedKernel
from unity_collage.report.difference import difference_data, difference_summary


def kernel(
    backend: str, label: str, names: str, seconds: float = 1e-3, noise: float = 0.0, **more: Any
) -> PlannedKernel:
    """A kernel of bindings ``names``, which are separated by spaces."""
    interval = (seconds - noise, seconds + noise) if noise else None
    return PlannedKernel(0, backend, label, label, tuple(names.split()), seconds, interval, **more)


def plan(*kernels: PlannedKernel, extra: float = 0.0, left: Sequence[str] = ("view",)) -> Plan:
    return Plan(kernels, sum(each.seconds for each in kernels) + extra, left_behind=tuple(left))


def groups(first: Plan, second: Plan) -> list[tuple[list[str], list[str]]]:
    """The groups, each kernel by its bindings."""
    return [
        ([" ".join(k.bindings) for k in a], [" ".join(k.bindings) for k in b])
        for a, b in paired(first, second)
    ]


CONV, RELU, BOTH = (
    kernel("onednn", "conv2d", "c"),
    kernel("tvm", "relu", "r"),
    kernel("tvm", "conv2d+relu", "c r"),
)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([CONV, RELU], [CONV, RELU], [(["c"], ["c"]), (["r"], ["r"])]),
        ([CONV, RELU], [BOTH], [(["c", "r"], ["c r"])]),
        ([BOTH], [CONV, RELU], [(["c r"], ["c", "r"])]),
        ([CONV, RELU], [CONV], [(["c"], ["c"]), (["r"], [])]),
        ([CONV], [CONV, RELU], [(["c"], ["c"]), ([], ["r"])]),
        ([RELU], [CONV, RELU], [([], ["c"]), (["r"], ["r"])]),
        ([], [], []),
    ],
    ids=["equal", "fused", "split", "gone", "new behind", "new before", "empty"],
)  # fmt: skip
def test_kernels_with_values_in_common_belong_together(
    first: list[PlannedKernel], second: list[PlannedKernel], expected: Any
) -> None:
    assert groups(plan(*first), plan(*second)) == expected


def test_a_value_that_many_kernels_compute_again_does_not_join_them() -> None:
    first = [kernel("tvm", "mask+add", f"mask a{i}") for i in range(3)]
    second = [kernel("tvm", "mask", "mask"), *(kernel("tvm", "add", f"a{i}") for i in range(3))]
    for plans, alone in (((first, second), (0, 1)), ((second, first), (1, 0))):
        found = groups(*(plan(*kernels) for kernels in plans))
        assert [(len(a), len(b)) for a, b in found] == [alone, (1, 1), (1, 1), (1, 1)]


def test_names_that_relax_counts_are_compared_only_where_both_plans_have_the_same() -> None:
    """A cast before the first convolution moves all numbers."""
    first = plan(kernel("tvm", "conv2d", "lv r1"), kernel("tvm", "conv2d", "lv1 r2"))
    second = plan(
        kernel("tvm", "cast", "lv"), kernel("tvm", "conv2d", "lv1 r1"), kernel("tvm", "conv2d", "lv2 r2")
    )
    assert groups(first, second) == [([], ["lv"]), (["lv r1"], ["lv1 r1"]), (["lv1 r2"], ["lv2 r2"])]


def test_kernels_without_a_name_of_the_model_are_matched_by_order_and_operators() -> None:
    first = plan(kernel("tvm", "matmul", "lv"), kernel("tvm", "relu", "lv1"), kernel("tvm", "matmul", "lv2"))
    second = plan(
        kernel("onednn", "matmul", "lv"), kernel("tvm", "cast", "lv1"), kernel("tvm", "relu", "lv2"),
        kernel("onednn", "matmul", "lv3"),
    )  # fmt: skip
    assert groups(first, second) == [(["lv"], ["lv"]), ([], ["lv1"]), (["lv1"], ["lv2"]), (["lv2"], ["lv3"])]


def test_one_kernel_for_the_whole_function_is_beside_all_of_the_other_plan() -> None:
    whole = plan(kernel("openvino", "the whole model", "gv"), left=())
    assert groups(plan(CONV, RELU), whole) == [(["c", "r"], ["gv"])]


@pytest.mark.parametrize(
    ("first", "second", "change"),
    [
        ([CONV], [replace(CONV, seconds=2e-3)], Change.NONE),
        ([CONV], [replace(CONV, backend="tvm")], Change.BACKEND),
        ([CONV], [replace(CONV, label="winograd")], Change.KERNEL),
        ([CONV], [replace(CONV, threads=1)], Change.KERNEL),
        ([CONV, RELU], [BOTH], Change.FUSION),
        ([BOTH], [kernel("tvm", "conv2d", "c")], Change.FUSION),
        ([CONV], [], Change.FIRST),
        ([], [CONV], Change.SECOND),
    ],
)  # fmt: skip
def test_what_has_changed(first: list[PlannedKernel], second: list[PlannedKernel], change: Change) -> None:
    assert [part.change for part in difference(plan(*first), plan(*second)).parts] == [change]


def compared() -> PlanDifference:
    """A convolution that is faster elsewhere, a relu that is the same, two kernels that are one, another launch."""
    first = plan(
        kernel("onednn", "conv2d", "c", 4e-3), kernel("tvm", "relu", "r"), kernel("tvm", "add", "a", 2e-3, 1e-3),
        kernel("tvm", "mul", "m", 1e-3), extra=1e-3,
    )  # fmt: skip
    second = plan(
        kernel("kernels", "conv2d", "c", 1e-3), kernel("tvm", "relu", "r"),
        kernel("tvm", "add+mul", "a m", 2.5e-3, 1e-3), extra=5e-4,
    )  # fmt: skip
    return difference(first, second)


def test_the_parts_and_what_is_between_kernels_add_up_to_the_whole_difference() -> None:
    found = compared()
    assert found.seconds == pytest.approx(-4e-3)
    assert found.between_seconds == pytest.approx(-5e-4)
    shares = [found.share(part.seconds) or 0.0 for part in found.parts]
    assert sum(shares) + (found.share(found.between_seconds) or 0.0) == pytest.approx(1.0)
    assert [part.change for part in found.changed] == [Change.BACKEND, Change.FUSION]
    assert [part.within_noise for part in found.parts] == [False, True, True]
    by_backend = {each.backend: each.seconds for each in found.by_backend}
    assert by_backend == pytest.approx({"onednn": -4e-3, "kernels": 1e-3, "tvm": -5e-4})
    assert sum(by_backend.values()) == pytest.approx(found.seconds - found.between_seconds)


def test_no_share_is_told_where_the_plans_cost_the_same() -> None:
    same = difference(plan(CONV, RELU), plan(replace(CONV, backend="tvm"), RELU))
    assert same.share(same.parts[0].seconds) is None


def text_of(found: Any, width: int = 110) -> str:
    console = Console(width=width, record=True)
    with console.capture() as taken:
        console.print(difference_summary(found, width=width), highlight=False)
    return taken.get()


def program_difference() -> Any:
    found = compared()
    first = {"main": replace(found.first, measured_seconds=9e-3)}
    second = {"main": replace(found.second, measured_seconds=6e-3), "other": plan(CONV)}
    return diff(first, second, names=("a.so", "b.so"))


def test_the_text_has_the_costs_what_changed_and_the_largest_differences() -> None:
    text = text_of(program_difference())
    assert "main: 4 kernels, 9.00 ms; then 3 kernels, 5.00 ms: -4.00 ms (-44.4%)" in text
    assert "the whole programs, measured: 9.00 ms, then 6.00 ms: -3.00 ms (-33.3%)" in text
    assert "other backend              1  4.00 ms  1.00 ms    -3.00 ms   75.0%" in text
    assert "launches, transitions         1.00 ms   500 us     -500 us   12.5%" in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "c onednn conv2d kernels conv2d 4.00 ms 1.00 ms -3.00 ms 75.0%" in rows
    assert "m tvm add, tvm mul tvm add+mul 3.00 ms 2.50 ms -500 us ~ 12.5%" in rows
    assert rows[-1] == "only the second has 1 plan more: other"


def test_the_text_fits_eighty_columns() -> None:
    assert max(map(len, text_of(program_difference(), 80).splitlines())) <= 80


def test_plans_without_costs_are_compared_without_times() -> None:
    unmeasured = plan(replace(CONV, seconds=0.0))
    found = diff({"main": unmeasured}, {"main": plan(replace(CONV, backend="tvm"))})
    assert "times are not compared" in text_of(found)
    data = difference_data(found)["functions"]["main"]
    assert (data["seconds"], data["parts"][0]["seconds"], data["parts"][0]["share"]) == (None, None, None)


def test_plans_of_two_models_are_said_to_be_apart() -> None:
    found = diff({"main": plan(CONV)}, {"main": plan(RELU, kernel("tvm", "add", "a"))})
    assert "no kernel of the two computes the same value" in text_of(found)
    assert not difference(plan(CONV), plan()).is_apart


def test_a_function_that_chooses_a_plan_by_sizes_has_no_kernels_to_compare() -> None:
    switch = Plan(variants={"main_1": {"batch": 1}, "main_8": {"batch": 8}})
    text = text_of(diff({"main": plan(CONV)}, {"main": switch, "main_1": plan(CONV)}))
    assert "main: 1 kernel; then one of 2 plans, by the sizes of its inputs" in text
    assert "what changed" not in text


def test_a_difference_shows_itself(tmp_path: Path) -> None:
    found = program_difference()
    assert "other backend" in str(found)
    assert "<table" in found._repr_html_()
    assert uc.diff is diff


def test_plans_are_read_from_files(tmp_path: Path) -> None:
    found = compared()
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    one.write_text(json.dumps({"main": encode(found.first)}))
    other.write_text(json.dumps({"plans": {"main": encode(found.second)}, "kept_since": None}))
    data = difference_data(diff(one, str(other)))
    assert (data["first"], data["second"]) == ("one.json", "other.json")
    assert data["functions"]["main"]["seconds"] == pytest.approx(-4e-3)
    assert difference_data(diff(found.first, other))["functions"]["main"]["seconds"] == pytest.approx(-4e-3)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (3, "the first is not a program, a module, a plan or a path: int"),
        ({}, "the first has no plan"),
        ("model.onnx", "model.onnx is a model: compile it"),
        ("missing.so", "missing.so is not a file"),
        ("cut.so", "cut.so is not a saved program, or only a part of one"),
        ("inputs.npz", "inputs.npz has no plan: name a saved program"),
        ({"f": plan(CONV), "g": plan(CONV)}, "no function is in both: the first has f, g, the second has main"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(
    given: Any, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cut.so", "inputs.npz"):
        (tmp_path / name).write_bytes(b"\xff text")
    with pytest.raises(CollageError, match=reason):
        diff(given, {"main": plan(CONV)})


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["p.json"], "p.json is not a model: give a second file to compare it with"),
        (["p.json", "missing.so"], "missing.so is not a file"),
        (["p.json", "p.json", "--report", "d.json"], "the name of the file ends in .html"),
        (["p.json", "p.json", "--report", "no/d.html"], "cannot be written: there is no folder no"),
        (["p.json", "q.json"], "q.json is not a file; did you mean p.json?"),
        (["p.json", "."], ". is not a file but a folder"),
        (["p.json", "p.json", "--first-options=--no-winograd"], "--first-options are for a model"),
        (["m.onnx", "p.json"], "m.onnx is not an ONNX model"),
        (["m.onnx", "b.json"], "b.json has no plans by function"),
        (["m.onnx", "p.json", "--memory-limit", "1MB", "--no-measure"], "--memory-limit needs costs"),
        (["m.onnx"], "both are one model with the same options"),
        (["m.onnx", "--second-options=--backends 'tvm"], "cannot be read: No closing quotation"),
    ],
)  # fmt: skip
def test_mistakes_of_the_command_are_found_first(
    words: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.json").write_text(json.dumps({"main": encode(plan(CONV))}))
    (tmp_path / "b.json").write_text("[]")
    (tmp_path / "m.onnx").touch()
    failures = ("is not an ONNX", " is not a file", "cannot be written", " has no plans")
    is_failure = any(text in reason for text in failures)
    assert cli.main(["diff", *words]) == (1 if is_failure else 2)
    assert reason in capsys.readouterr().err


def test_sizes_of_one_model_are_added_to_those_of_both() -> None:
    words = [
        "diff",
        "m.onnx",
        "--shape",
        "batch=1",
        "--dim",
        "rows=2",
        "--second-options=--shape rows=4 --dim n=3",
    ]
    given = diff_command._given(cli.parser_of("diff").parse_args(words))
    first, second = (sizes_of(asked) for _, asked in given if asked is not None)
    assert first == {"shapes": {"batch": 1}, "dims": {"rows": 2}}
    assert second == {"shapes": {"batch": 1, "rows": 4}, "dims": {"n": 3}}


def test_files_of_one_name_are_called_by_their_paths(tmp_path: Path, capsys: Any) -> None:
    files = [tmp_path / folder / "p.json" for folder in ("old", "new")]
    for path in files:
        path.parent.mkdir()
        path.write_text(json.dumps({"main": encode(plan(CONV))}))
    assert cli.main(["diff", *map(str, files), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["first"], data["second"]) == tuple(map(str, files))


def test_thousands_of_kernels_are_compared_in_a_moment() -> None:
    """Names that are counted differ in both plans, so only the order of the operators is left."""
    kernels = [kernel("tvm", "op", f"lv{n}") for n in range(4000)]
    before = time.monotonic()
    found = groups(plan(*kernels), plan(kernel("tvm", "cast", "lv"), *kernels))
    assert time.monotonic() - before < 20
    assert [(len(a), len(b)) for a, b in found] == [(0, 1), *[(1, 1)] * 4000]


def test_the_command_writes_tables_data_and_a_page(tmp_path: Path, capsys: Any) -> None:
    found, files = compared(), [tmp_path / "a.json", tmp_path / "b.json"]
    for path, each in zip(files, (found.first, found.second), strict=True):
        path.write_text(json.dumps({"main": encode(each)}))
    page = tmp_path / "d.html"
    assert cli.main(["diff", *map(str, files), "--report", str(page)]) == 0
    assert "-4.00 ms (-44.4%)" in capsys.readouterr().out
    assert '"first": "a.json"' in page.read_text()
    assert cli.main(["diff", *map(str, files), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["functions"]["main"]["by_change"][0]["change"] == "same kernel"
