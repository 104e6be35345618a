"""``unity-collage db`` and ``compile --locked`` as their user meets them, on costs that were measured."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from said import errors_in

import unity_collage as uc
from unity_collage.cli import main as cli
from unity_collage.database import schema
from unity_collage.database.costs import CostDatabase, FailureKind, Quarantined
from unity_collage.errors import MissingCost
from unity_collage.measure.measured import MeasuredCost
from unity_collage.pipeline import Pipeline

Run = Callable[..., tuple[int, list[str], list[str]]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on a terminal of 80 columns: its exit code, output and errors by line."""
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments: object) -> tuple[int, list[str], list[str]]:
        code = cli.main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return code, [line.rstrip() for line in out.splitlines()], errors_in(err)

    return command


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``y = relu(x w)``."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 4))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 3))
    w = numpy_helper.from_array(np.ones((4, 3), "float32"), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Relu", ["z"], ["y"])]
    graph = helper.make_graph(nodes, "small", [x], [y], [w])
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def measured(model: Path) -> Path:
    """Costs of the model, measured once."""
    with CostDatabase(model.with_name("costs.sqlite")) as database:
        uc.compile(model, database=database)
        every, mod = Pipeline(model=MeasuredCost(database), every=True), uc.import_model(model).mod
        with uc.host_target():
            tvm.transform.Sequential(every.until_costs())(mod)
    return model.with_name("costs.sqlite")


@pytest.fixture
def costs(measured: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copy(measured, tmp_path / "costs.sqlite"))


def without(costs: Path, backend: str) -> Path:
    with CostDatabase(costs) as database, database.writing() as connection:
        connection.execute(schema.COSTS.delete().where(schema.COSTS.c.backend == backend))
    return costs


def test_locked_costs_give_the_same_plan_and_start_no_worker(
    model: Path, costs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patches:
        patches.setattr("subprocess.Popen", None)
        first, second = (uc.compile(model, database=costs, locked=True, recompile=True) for _ in range(2))
    assert first.plan == second.plan
    assert first.mod.script() == second.mod.script()
    saved = [tmp_path / "first.so", tmp_path / "second.so"]
    first.save(saved[0])
    second.save(saved[1])
    assert saved[0].read_bytes() == saved[1].read_bytes()


def test_a_missing_cost_is_one_error_that_counts_and_names(run: Run, model: Path, costs: Path) -> None:
    code, out, err = run("compile", model, "--database", without(costs, "onednn"), "--locked")
    assert (code, out, len(err)) == (1, [], 1)
    assert re.match(rf"unity-collage: \d+ costs? (is|are) not in {costs}, and it is locked: onednn ", err[0])
    with pytest.raises(MissingCost):
        uc.compile(model, database=costs, locked=True)


def test_a_missing_cost_says_in_what_the_known_ones_differ(run: Run, model: Path, costs: Path) -> None:
    threads = uc.num_threads()
    try:
        code, _, err = run("--threads", threads + 1, "compile", model, "--database", costs, "--locked")
    finally:
        uc.set_num_threads(threads)
    assert (code, len(err)) == (1, 1)
    assert "were measured with another fingerprint: " in err[0]
    assert f"threads is {threads + 1} here, {threads} there" in err[0]


def test_locked_needs_a_database_that_is_there(run: Run, model: Path, tmp_path: Path) -> None:
    code, _, err = run("compile", model, "--database", tmp_path / "none.sqlite", "--locked")
    assert (code, err) == (
        1,
        [f"unity-collage: costs cannot be read from {tmp_path}/none.sqlite: there is no such file"],
    )


def test_doubtful_costs_are_listed(run: Run, costs: Path) -> None:
    # On a busy machine some are doubtful.
    with CostDatabase(costs) as database, database.writing() as connection:
        connection.execute(schema.COSTS.update().values(doubtful=False))
    code, out, err = run("db", "list", "--database", costs, "--doubtful")
    assert (code, err, out) == (
        0,
        [],
        [f"0 of {len([c for c in CostDatabase(costs).costs() if c.seconds])} costs"],
    )
    with CostDatabase(costs) as database, database.writing() as connection:
        connection.execute(
            schema.COSTS.update().where(schema.COSTS.c.backend == "onednn").values(doubtful=True)
        )
    code, out, err = run("db", "list", "--database", costs, "--doubtful")
    assert (code, err) == (0, []) and all(
        "onednn" in line and line.endswith("doubtful") for line in out[1:-1]
    )
    assert len(out) > 2


def test_info_counts_and_shows_the_fingerprints(run: Run, costs: Path) -> None:
    with CostDatabase(costs) as database:
        count = len(database)
        database.quarantine(
            Quarantined("tvm:x:L2", "tvm 1", "exp", "tvm", FailureKind.CRASH, "SIGSEGV [in a loop]")
        )
    code, out, err = run("db", "info", "--database", costs, "--fingerprints")
    text = "\n".join(out)
    assert (code, err) == (0, [])
    assert out[0] == str(costs) and out[1].startswith(f"{count} costs, 0 refusals, 1 in quarantine, ")
    assert {"onednn", "openblas", "tvm"} <= {line.split()[0] for line in out if line}
    assert [line.split() for line in out if "SIGSEGV" in line] == [
        ["tvm", "exp", "crash", "SIGSEGV", "[in", "a", "loop]"]
    ]
    assert f"threads: {uc.num_threads()}" in text and text.count("which hold here now") == 3


def test_export_import_and_merge_carry_everything(run: Run, costs: Path, tmp_path: Path) -> None:
    export, other = tmp_path / "costs.jsonl", tmp_path / "other.sqlite"
    count = len(CostDatabase(costs))
    code, out, _ = run("db", "export", "--database", costs, export)
    assert (code, out) == (0, [f"wrote {export}: {count} costs and refusals"])
    code, out, _ = run("db", "import", export, "--database", other)
    assert code == 0 and [line.split()[1:] for line in out if line.startswith(" costs")] == [
        [str(count), str(count), "0", "0"]
    ]
    code, out, _ = run("db", "merge", costs, other, "--database", tmp_path / "third.sqlite")
    assert code == 0 and [line.split()[1:] for line in out if line.startswith(" costs")] == [
        [str(2 * count), str(count), "0", str(count)]
    ]
    code, out, _ = run("db", "export", "--database", tmp_path / "third.sqlite", "-")
    assert code == 0 and out == export.read_text().splitlines()
    assert json.loads(out[0]) == {"unity_collage": "costs", "schema": schema.SCHEMA_VERSION}


def test_diff_shows_what_differs(run: Run, costs: Path, tmp_path: Path) -> None:
    other = Path(shutil.copy(costs, tmp_path / "other.sqlite"))
    with CostDatabase(other) as database, database.writing() as connection:
        connection.execute(
            schema.COSTS.update().where(schema.COSTS.c.backend == "openblas").values(seconds=123e-6)
        )
    code, out, err = run("db", "diff", costs, other, "--more-than", "20%")
    changed = [line for line in out if " openblas " in line]
    assert (code, err) == (0, [])
    assert " differ" in out[0] and "by more than 20%" in out[0]
    assert changed and all("123 us" in line for line in changed)
    assert not [line for line in out if " onednn " in line]
    assert all(len(line) <= 80 for line in out)


def test_prune_says_what_it_removes(run: Run, costs: Path) -> None:
    with CostDatabase(costs) as database:
        count = len(database)
        for kind, version in ((FailureKind.HANG, "tvm 1"), (FailureKind.CRASH, "tvm 2")):
            database.quarantine(Quarantined("tvm:x:L2", version, "exp", "tvm", kind, "no answer"))
    arguments = ("db", "prune", "--database", costs)
    assert run(*arguments, "--stale")[1] == ["removed 0 costs, 0 refusals, 0 in quarantine, 0 facts"]
    dry = run(*arguments, "--release", "hang", "--dry-run")[1]
    assert dry == ["would remove 0 costs, 0 refusals, 1 in quarantine, 0 facts"]
    assert run(*arguments, "--release", "hang")[1] == [
        "removed 0 costs, 0 refusals, 1 in quarantine, 0 facts"
    ]
    assert run(*arguments, "--old-versions")[1] == ["removed 0 costs, 0 refusals, 1 in quarantine, 0 facts"]
    assert len(CostDatabase(costs)) == count
    code, _, err = run(*arguments)
    assert (code, err) == (
        2,
        ["unity-collage: say what to remove: --older-than, --stale, --old-versions, --release or --programs"],
    )


def test_verify_measures_a_sample_again_and_keeps_nothing(run: Run, costs: Path) -> None:
    before = CostDatabase(costs).costs()
    code, out, err = run("db", "verify", "--database", costs, "--sample", 3)
    assert (code, err) == (0, [])
    assert out[0] == f"measured 3 kernels again, of {len(before)} that this machine can"
    assert sum(line.endswith("x") for line in out) == 3
    assert out[-1].startswith("median ") and " of 3 within 10%" in out[-1]
    assert CostDatabase(costs).costs() == before


def test_verify_says_when_nothing_can_be_measured_again(run: Run, costs: Path) -> None:
    with CostDatabase(costs) as database, database.writing() as connection:
        connection.execute(schema.COSTS.update().values(fingerprint="elsewhere"))
    code, _, err = run("db", "verify", "--database", costs)
    assert code == 1 and "has no costs that can be measured again here" in err[0]


def test_a_pack_of_these_costs_is_told_by_the_database_that_has_it(
    run: Run, costs: Path, tmp_path: Path
) -> None:
    pack, other = tmp_path / "small.pack", tmp_path / "other.sqlite"
    count = len([cost for cost in CostDatabase(costs).costs() if not cost.doubtful and cost.lasting])
    code, out, err = run("db", "export", "--pack", pack, "--database", costs)
    assert (code, err) == (0, []) and out[0].startswith(f"wrote {pack}: {count} costs and refusals, ")
    code, out, err = run("db", "import", "--pack", pack, "--database", other)
    assert (code, err, out[-1]) == (0, [], f"into {other}")
    code, out, err = run("db", "info", "--database", other)
    assert (code, err) == (0, []) and any(line.endswith("refusals: not tried here yet") for line in out)
    code, _, err = run("db", "export", "--pack", pack, "--database", other)
    assert code == 1 and "has no undisturbed costs of this machine" in err[0]


MISTAKES: dict[str, tuple[tuple[str, ...], str]] = {
    "info of nothing": (("info", "--database", "none.sqlite"), "none.sqlite: there is no such file"),
    "info of a folder": (("info", "--database", "."), ".: it is a folder"),
    "a broken export": (
        ("import", "text.jsonl"), "text.jsonl, line 1: this is not an export of a cost database",
    ),
    "no export": (("import", "none.jsonl"), "none.jsonl is not a file"),
    "bytes for an export": (
        ("import", "bytes.jsonl"), "not an export of a cost database, as db export writes it: it is not text",
    ),
    "an export into nowhere": (
        ("export", "--database", "costs.sqlite", "no/such.jsonl"), "no/such.jsonl cannot be written: there is",
    ),
    "a broken pack": (
        ("import", "--pack", "bytes.jsonl"), "bytes.jsonl is not a pack of costs: db export --pack writes one",
    ),
    "no pack": (("import", "--pack", "none.pack"), "none.pack cannot be read: No such file or directory"),
    "merging nothing": (("merge", "none.sqlite", "--database", "new.sqlite"), "none.sqlite: there is no such"),
    "comparing nothing": (("diff", "costs.sqlite", "none.sqlite"), "none.sqlite: there is no such file"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_one_line_and_makes_no_database(
    run: Run, costs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.jsonl").write_text("just a text\n")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\x00")
    arguments, reason = MISTAKES[what]
    code, out, err = run("db", *arguments)
    assert (code, out, len(err)) == (1, [], 1)
    assert reason in err[0]
    assert not list(tmp_path.glob("n*.sqlite"))


@pytest.mark.parametrize(
    "arguments",
    [["db"], ["db", "diff", "a", "b", "--more-than", "much"], ["db", "prune", "--release", "all"]],
)
def test_wrong_arguments_are_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("unity-collage: ")
