"""Programs with timing points: their kernels are those of the plan, whatever way a run takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from compiled import compiled
from onnx import TensorProto, helper, numpy_helper
from test_schedule_branches import SHAPE, _chains, cell

import unity_collage as uc
from unity_collage.cli import main as cli
from unity_collage.lowering.branches import Calls, staged
from unity_collage.lowering.build import build
from unity_collage.profile.in_place import profile
from unity_collage.profile.result import Profile
from unity_collage.profile.trace import trace_of
from unity_collage.target import host_target

WEIGHTS = numpy_helper.from_array(np.random.default_rng(0).standard_normal((16, 16), "float32"), "w")
SECONDS = 0.02


def value(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto], rows: int | str
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "model", inputs, [value("y", rows, 16)], [WEIGHTS])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def layers(rows: int | str = 4) -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Softmax", ["product"], ["soft"]),
        helper.make_node("MatMul", ["soft", "w"], ["again"]),
        helper.make_node("Relu", ["again"], ["y"]),
    ]
    return model(nodes, [value("x", rows, 16)], rows)


def choosing() -> onnx.ModelProto:
    """``y = relu(c ? tanh(x w) : exp(x))``."""

    def branch(*nodes: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph(nodes, nodes[-1].output[0], [], [value(nodes[-1].output[0], 4, 16)])

    then = branch(helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Tanh", ["p"], ["t"]))
    otherwise = branch(helper.make_node("Exp", ["x"], ["e"]))
    nodes = [
        helper.make_node("If", ["c"], ["chosen"], then_branch=then, else_branch=otherwise),
        helper.make_node("Relu", ["chosen"], ["y"]),
    ]
    return model(nodes, [value("c", kind=TensorProto.BOOL), value("x", 4, 16)], 4)


@cache
def of_layers() -> uc.Program:
    """The program of :func:`layers`, with kernels of libraries."""
    return compiled(layers())


@cache
def by_rule(make: Callable[..., onnx.ModelProto], *given: str) -> uc.Program:
    """The program of a model by rule, with variants for 1 and 8 rows where they are free."""
    return uc.compile(make(*given), measure=False, shapes={name: [1, 8] for name in given} or None)


def rows(number: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((number, 16), "float32")


def holds(found: Profile) -> None:
    """Times of single runs add up: kernels follow each other, and none ends after its run."""
    assert found.seconds > 0 and found.runs > 0 and found.reading_seconds >= 0
    main = [event for event in found.events if event.track == 0]
    for before, after in pairwise(main):
        assert after.start >= before.start + before.seconds - 1e-12
    events = json.loads(json.dumps(trace_of(found, "model")))["traceEvents"]
    assert sum(event.get("cat") == "kernel" for event in events) == len(found.events)


@pytest.mark.parametrize("backends", [None, ["tvm"]])
def test_the_kernels_are_those_of_the_plan(backends: list[str] | None) -> None:
    program = of_layers() if backends is None else compiled(layers(), backends)

    found = program.profile(rows(4), seconds=SECONDS)

    holds(found)
    assert program.plan is not None
    planned = program.plan["main"].kernels
    calls = [(event.kernel.name, event.call.layers) for event in found.events if event.run == 0]
    assert calls == [(kernel.function, kernel.bindings) for kernel in planned]
    assert [event.kernel.backend for event in found.events[: len(planned)]] == [k.backend for k in planned]
    products = [kernel for kernel in found.kernels if "matmul" in kernel.name]
    assert (
        sum(kernel.work.flops * len(kernel.calls) for kernel in products if kernel.work)
        == 2 * 2 * 4 * 16 * 16
    )
    assert all(call.cost for kernel in found.kernels for call in kernel.calls)


def test_a_program_computes_the_same_with_timing_points() -> None:
    program, x = of_layers(), rows(4)
    before = program(x).numpy()
    program.profile({"x": x}, seconds=SECONDS)
    np.testing.assert_array_equal(program(x).numpy(), before)


@pytest.mark.parametrize("chosen", [True, False])
def test_the_branch_that_runs_is_profiled(chosen: bool) -> None:
    program = by_rule(choosing)

    found = program.profile(np.array(chosen), rows(4), seconds=SECONDS)

    holds(found)
    layers = {layer for kernel in found.kernels for layer in kernel.layers}
    assert ("t" in layers, "e" in layers) == (chosen, not chosen)
    assert len(found.kernels) == 2 and any("relu" in kernel.name for kernel in found.kernels)


@pytest.mark.parametrize(
    ("number", "functions"),
    [(1, {"main_rows_1"}), (8, {"main_rows_8"}), (2, {"main_any_size"})],
)
def test_the_variant_for_the_sizes_is_profiled(number: int, functions: set[str]) -> None:
    program = by_rule(layers, "rows")

    found = program.profile(rows(number), seconds=SECONDS)

    holds(found)
    assert {call.function for kernel in found.kernels for call in kernel.calls} == functions
    (product, *_) = [kernel for kernel in found.kernels if "product" in kernel.layers]
    assert len(product.calls) == 1


def test_branches_side_by_side_are_timed_in_their_lanes() -> None:
    target = host_target()
    mod = uc.compile(cell(), backends=["tvm"], measure=False).mod
    assert mod is not None
    calls = Calls.of(mod)
    assert isinstance(calls, Calls)
    mod = staged(mod, calls, _chains(calls))
    program = uc.Program(build(mod, target), ["x"], mod)

    found = profile(program, [np.ones(SHAPE, "float32")], {}, SECONDS, target)

    holds(found)
    inside = sum(len(kernel.calls) for kernel in found.side_by_side)
    assert [kernel.name for kernel in found.kernels if kernel.label == "branches side by side"] == ["stage_0"]
    assert inside == len(calls.kernels) - 1
    first = [event for event in found.events if event.run == 0]
    (stage,) = [event for event in first if event.kernel.name == "stage_0"]
    lanes = [event for event in first if event.track > 0]
    assert {event.track for event in lanes} == {1, 2} and len(lanes) == inside
    assert all(stage.start <= event.start for event in lanes)
    assert all(event.start + event.seconds <= stage.start + stage.seconds + 1e-9 for event in lanes)


def test_a_program_that_was_loaded_says_what_to_profile(tmp_path: Path) -> None:
    of_layers().save(tmp_path / "model.so")
    with pytest.raises(uc.CollageError, match=r"unity-collage profile FILE\.so --model MODEL"):
        uc.load(tmp_path / "model.so").profile(rows(4))


def test_a_saved_program_is_timed_by_the_kernels_of_its_plan(tmp_path: Path, capfd) -> None:
    source, saved = tmp_path / "model.onnx", tmp_path / "model.so"
    onnx.save(layers(), source)
    program = uc.compile(str(source), measure=False, recompile=True)
    program.save(saved)
    words = ["profile", str(saved), "--model", str(source), "--seconds", "0.05", "--json", "-q"]
    assert cli.main(words) == 0
    found = json.loads(capfd.readouterr().out)
    timed = [kernel["backend"] for kernel in found["kernels"] for _ in kernel["calls"]]
    planned = [kernel.backend for kernel in program.plan["main"].kernels]
    assert planned and set(planned) <= set(timed) and len(timed) >= len(planned)
    assert found["seconds"] > 0 and found["runs"] > 0
    onnx.save(choosing(), source)
    assert cli.main(words) == 1
    assert "takes and returns" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["model.so"], "name the model that it was compiled from with --model"),
        (["model.onnx", "--model", "model.onnx"], "--model is for saved programs"),
        (["model.so", "--model", "none.onnx"], "none.onnx is not a file"),
    ],
)
def test_a_saved_program_needs_its_model(
    tmp_path: Path, capfd, monkeypatch: pytest.MonkeyPatch, names: list[str], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("model.so", "model.onnx"):
        Path(name).touch()
    assert cli.main(["profile", *names]) == (1 if "is not a file" in reason else 2)
    assert reason in capfd.readouterr().err


def test_wrong_inputs_are_refused_as_by_a_call() -> None:
    with pytest.raises(uc.CollageError, match="input 'x' takes"):
        of_layers().profile(rows(3))


def test_the_command_shows_and_writes_a_profile(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    onnx.save(layers(), tmp_path / "model.onnx")
    np.savez(tmp_path / "inputs.npz", x=rows(4))
    trace = tmp_path / "trace.json"
    options = ["--no-measure", "--inputs", tmp_path / "inputs.npz", "--seconds", "0.05"]

    command = ["profile", tmp_path / "model.onnx", *options, "--trace", trace]
    assert cli.main(list(map(str, command))) == 0

    out = capfd.readouterr().out.splitlines()
    assert out[0].startswith("model.onnx: ") and out[-1] == f"wrote {trace}"
    assert cli.main([*map(str, command), "--json"]) == 0
    kernels = json.loads(capfd.readouterr().out)["kernels"]
    assert all(any(line.strip().startswith(kernel["name"][:20]) for line in out) for kernel in kernels)
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["name"] for event in events if event.get("cat") == "kernel"} == {k["name"] for k in kernels}


def test_data_on_standard_output_is_all_that_is_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    onnx.save(layers(), tmp_path / "model.onnx")
    command = ["profile", str(tmp_path / "model.onnx"), "--no-measure", "--seconds", "0.05", "--json"]
    assert cli.main(command) == 0
    assert json.loads(capfd.readouterr().out)["model"] == "model.onnx"
