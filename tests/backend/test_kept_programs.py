"""The second compile of a model: it runs no pass, and its program is and says what the first one did."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from compiled import arrays, random
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage import making
from unity_collage.database.costs import CostDatabase
from unity_collage.errors import CollageError
from unity_collage.kept import place, surroundings
from unity_collage.profile.planned_times import with_times

X = random(4, 16)
WEIGHTS = random(16, 8, seed=1)


@pytest.fixture(autouse=True)
def usual(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No instrument watches the passes, and the code does not change: otherwise nothing is kept."""
    monkeypatch.setattr(surroundings, "_code", lambda: "code")
    with tvm.transform.PassContext():
        yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """relu(x @ weights), with the weights in a file of their own."""
    made = tmp_path / "layer.onnx"
    onnx.save(layer(), made, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return made


def layer(weights: np.ndarray = WEIGHTS) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (4, 16)), ("y", (4, 8)))
    ]
    graph = helper.make_graph(nodes, "layer", values[:1], values[1:], [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def module(scale: float = 2.0) -> IRModule:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(R.nn.relu(R.multiply(x, R.const(np.float32(scale)))))
        builder.emit_func_output(y)
    return builder.get()


def by_rule(model: Any, folder: Path, **options: Any) -> uc.Program:
    """Nothing is measured, which takes seconds, and the program is kept all the same."""
    return uc.compile(model, measure=False, database=folder / "costs.sqlite", **options)


def test_the_second_compile_of_a_file_imports_nothing_and_gives_the_same_bytes(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = by_rule(path, tmp_path)
    monkeypatch.setattr(making, "import_model", lambda *_: pytest.fail("the importer was called"))
    second = by_rule(path, tmp_path)
    assert (first.kept_since is None, second.kept_since is None) == (True, False)
    for number, program in enumerate((first, second)):
        program.save(tmp_path / f"{number}.so")
    assert (tmp_path / "0.so").read_bytes() == (tmp_path / "1.so").read_bytes()
    np.testing.assert_array_equal(arrays(first(X)), arrays(second(X)))
    assert second.plan == first.plan and repr(second) == repr(first)
    assert second.threads == first.threads and second.device == first.device


def test_a_kept_program_is_used_like_a_new_one(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_rule(path, tmp_path)
    program = by_rule(path, tmp_path)
    right = np.maximum(X @ WEIGHTS, 0)
    np.testing.assert_allclose(arrays(pickle.loads(pickle.dumps(program))(X)), right, rtol=1e-4, atol=1e-5)
    out = np.zeros((4, 8), "float32")
    program(x=X, out=out)
    np.testing.assert_allclose(out, right, rtol=1e-4, atol=1e-5)
    assert program.benchmark(X, seconds=0.01)["median"] > 0
    program.save(tmp_path / "saved.so")
    assert uc.load(tmp_path / "saved.so").input_names == ("x",)
    assert program.mod is not None and program.mod["main"] is not None
    with pytest.raises(CollageError, match="it was loaded, or its model has no weights"):
        program.bind({})


def test_times_of_kernels_are_kept_with_their_day_and_only_with_their_program(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[tuple[place.KeptPrograms, str]] = []
    keep = place.KeptPrograms.keep
    monkeypatch.setattr(
        place.KeptPrograms,
        "keep",
        lambda self, model, *rest: (kept.append((self, model)), keep(self, model, *rest)),
    )
    old = by_rule(path, tmp_path)
    old.plan = with_times(old.plan or {}, old.profile(X, seconds=0.05))
    program = by_rule(path, tmp_path, recompile=True)
    program.plan = with_times(program.plan or {}, program.profile(X, seconds=0.05))
    times, (where, digest) = program.plan["main"].in_place, kept[-1]
    where.add_times(digest, old)  # whose library has been replaced
    assert by_rule(path, tmp_path).plan["main"].in_place is None
    before = time.time()
    where.add_times(digest, program)
    found = by_rule(path, tmp_path).plan["main"]
    assert found.in_place is not None and before <= found.in_place.since <= time.time()
    assert replace(found.in_place, since=None) == times
    assert found.measured_seconds == times.program
    assert by_rule(path, tmp_path, recompile=True).plan["main"].in_place is None
    assert by_rule(path, tmp_path).plan["main"].in_place is None


def test_the_module_of_a_program_whose_plan_has_changed_is_refused(path: Path, tmp_path: Path) -> None:
    by_rule(path, tmp_path)
    program = by_rule(path, tmp_path)
    onnx.save(onnx.shape_inference.infer_shapes(_without_relu()), path)
    with pytest.raises(CollageError, match="has changed: compile it again"):
        _ = program.mod


def _without_relu() -> onnx.ModelProto:
    model = layer()
    model.graph.node[1].op_type = "Neg"
    return model


@pytest.mark.parametrize("what", ["model", "weights", "option", "packages", "recompile", "damage"])
def test_whatever_changes_makes_it_anew(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    by_rule(path, tmp_path)
    options: dict[str, Any] = {}
    right = np.maximum(X @ WEIGHTS, 0)
    if what == "model":
        path.write_bytes(path.read_bytes().replace(b"Relu", b"Tanh"))
        right = np.tanh(X @ WEIGHTS)
    elif what == "weights":
        (tmp_path / "weights.bin").write_bytes((2 * WEIGHTS).tobytes())
        right = 2 * right
    elif what == "option":
        options = {"backends": ["tvm"]}
    elif what == "packages":
        monkeypatch.setattr(surroundings, "_packages", lambda: ["apache_tvm-9.dist-info"])
    elif what == "recompile":
        options = {"recompile": True}
    else:
        (library,) = (tmp_path / "costs-programs").glob("*.so")
        library.write_bytes(library.read_bytes()[:-1])
    program = by_rule(path, tmp_path, **options)
    assert program.kept_since is None
    np.testing.assert_allclose(arrays(program(X)), right, rtol=1e-4, atol=1e-5)
    assert by_rule(path, tmp_path, **options | {"recompile": False}).kept_since is not None


def test_modules_and_models_in_memory_are_known_by_their_content(tmp_path: Path) -> None:
    by_rule(module(), tmp_path)
    assert by_rule(module(), tmp_path).kept_since is not None
    other = by_rule(module(3.0), tmp_path)
    assert other.kept_since is None
    np.testing.assert_allclose(arrays(other(X)), np.maximum(3 * X, 0), rtol=1e-6)
    by_rule(layer(), tmp_path)
    assert by_rule(layer(), tmp_path).kept_since is not None
    assert by_rule(layer(2 * WEIGHTS), tmp_path).kept_since is None


def test_bound_weights_count(tmp_path: Path) -> None:
    model = layer()
    del model.graph.initializer[:]
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, (16, 8)))
    for scale in (1, 2):
        for is_kept in (False, True):
            program = by_rule(model, tmp_path, params={"w": scale * WEIGHTS})
            assert (program.kept_since is not None) == is_kept
            right = np.maximum(X @ WEIGHTS, 0) * scale
            np.testing.assert_allclose(arrays(program(X)), right, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_told_is_not_kept(tmp_path: Path) -> None:
    with tvm.transform.PassContext(opt_level=3):
        by_rule(module(), tmp_path)
    by_rule(
        layer(), tmp_path, custom_ops={"of.nobody::Foo": np.sin}
    )  # the function may be another one next time
    assert not (tmp_path / "costs-programs").exists()


def test_a_folder_that_cannot_be_made_is_no_error(path: Path, tmp_path: Path) -> None:
    (tmp_path / "costs-programs").touch()
    for _ in range(2):
        assert by_rule(path, tmp_path).kept_since is None


_COMMAND = """
import sys
from unity_collage.kept import surroundings
surroundings._code = lambda: "code"
from unity_collage.cli import command
sys.argv = ["unity-collage", *sys.argv[1:]]
code = command()
print("with TVM" if "tvm" in sys.modules else "without TVM")
sys.exit(code)
"""


def test_a_command_does_not_load_tvm_for_a_kept_program(path: Path, tmp_path: Path) -> None:
    by_rule(path, tmp_path)
    options = ["--no-measure", "--database", tmp_path / "costs.sqlite", "-o", tmp_path / "out.so"]
    command = [sys.executable, "-c", _COMMAND, "compile", path, *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "without TVM"
    assert "is kept: --recompile compiles it again" in done.stderr
    (library,) = (tmp_path / "costs-programs").glob("*.so")
    assert (tmp_path / "out.so").read_bytes() == library.read_bytes()


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """No measurement is doubtful, whatever else the machine does."""
    store = CostDatabase._keep

    def sure(database: CostDatabase, table: Any, row: dict[str, Any], texts: Any = ()) -> None:
        store(database, table, row | ({"doubtful": False} if "doubtful" in row else {}), texts)

    monkeypatch.setattr(CostDatabase, "_keep", sure)


@pytest.mark.alone
def test_a_measured_program_holds_as_long_as_its_costs(
    path: Path, tmp_path: Path, calm: None, fastest_machine: None
) -> None:
    def compiled(**options: Any) -> uc.Program:
        return uc.compile(path, database=tmp_path / "costs.sqlite", explain=True, packs=False, **options)

    first, second = compiled(), compiled()
    assert second.kept_since is not None and second.plan is not None and first.plan is not None
    assert second.explanation == first.explanation
    assert second.plan["main"].kernels == first.plan["main"].kernels
    comparison = second.plan["main"].comparison
    assert comparison is None or comparison.origin == "database"
    assert compiled(budget_seconds=30.0).kept_since is not None  # nothing is left to be measured
    with CostDatabase(tmp_path / "costs.sqlite") as database, database.writing() as connection:
        connection.exec_driver_sql("UPDATE collage_costs SET seconds = seconds * 2, high = high * 2")
    assert compiled().kept_since is None
    assert compiled(locked=True).kept_since is None
    assert compiled(remeasure=True).kept_since is None


@pytest.mark.alone
def test_a_compile_out_of_time_is_kept_and_goes_on_when_it_is_given_time(
    path: Path, tmp_path: Path, calm: None, fastest_machine: None
) -> None:
    def compiled(**options: Any) -> uc.Program:
        return uc.compile(path, database=tmp_path / "costs.sqlite", packs=False, **options)

    assert compiled(budget_seconds=1e-9).kept_since is None
    kept = compiled()
    assert (
        kept.kept_since is not None and kept.mod is not None
    )  # measures no more: other costs make another plan
    assert compiled().kept_since == kept.kept_since and not _costs(tmp_path)
    assert compiled(budget_seconds=60.0).kept_since is None
    assert compiled(budget_seconds=60.0).kept_since is not None


def _costs(folder: Path) -> int:
    """How many costs of kernels were measured."""
    with CostDatabase(folder / "costs.sqlite") as database, database.writing() as connection:
        found = connection.exec_driver_sql("SELECT count(*) FROM collage_costs WHERE seconds IS NOT NULL")
        return found.scalar_one()


def test_a_doubtful_answer_keeps_nothing(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place.Answers, "are_sure", False)
    for _ in range(2):
        assert by_rule(path, tmp_path).kept_since is None
