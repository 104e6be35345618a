"""The command line as its user meets it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
import zoo_models as models
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from said import errors_in

import unity_collage as uc
from unity_collage.cli import main as cli
from unity_collage.plan.plan import Plan, PlannedKernel, Rival, WithoutCost
from unity_collage.profile.peers import bench
from unity_collage.profile.peers.bench import timed_in_turns
from unity_collage.report import bench_table, cost_remark, duration, plan_summary

Run = Callable[..., tuple[int, list[str], list[str]]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on a terminal of 80 columns: its exit code, output and errors by line."""
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments: object) -> tuple[int, list[str], list[str]]:
        code = cli.main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return code, out.splitlines(), errors_in(err)

    return command


def saved(path: Path, *nodes: onnx.NodeProto, weights: int = 4) -> Path:
    """A model that computes ``y`` from ``x`` (2 x 4) and ``w`` (``weights`` x 3)."""

    def value(name: str, *shape: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    w = numpy_helper.from_array(np.ones((weights, 3), "float32"), "w")
    graph = helper.make_graph(nodes, "small", [value("x", 2, 4)], [value("y", 2, 3)], [w])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own.ops", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


PRODUCT = helper.make_node("MatMul", ["x", "w"], ["y"])


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Costs of the small model, measured once."""
    folder = tmp_path_factory.mktemp("costs")
    uc.compile(saved(folder / "small.onnx", PRODUCT), database=folder / "costs.sqlite")
    return folder / "costs.sqlite"


def test_compile_writes_the_program_and_the_plan_and_says_so(run: Run, tmp_path: Path, costs: Path) -> None:
    model, program, plan = saved(tmp_path / "m.onnx", PRODUCT), tmp_path / "m.so", tmp_path / "plan.json"
    code, out, err = run("compile", model, "-o", program, "--report", plan, "--database", costs)
    assert (code, err) == (0, [])
    assert re.fullmatch(r"main: 1 kernel, predicted [\d.]+ .?s, measured [\d.]+ .?s( on [\d-]+)?", out[0])
    assert re.fullmatch(
        r"additive error: [\d.]+ .?s (more|less) than all kernels together \([+-][\d.]+%\)", out[1]
    )
    assert out[-2:] == [f"wrote {plan}", f"wrote {program}"]
    assert json.loads(plan.read_text())["main"]["kernels"][0]["label"] == "matmul"
    np.testing.assert_allclose(uc.load(program)(np.ones((2, 4), "float32")).numpy(), np.full((2, 3), 4.0))


def test_a_dry_run_builds_nothing(run: Run, tmp_path: Path, costs: Path) -> None:
    model, program = saved(tmp_path / "m.onnx", PRODUCT), tmp_path / "m.so"
    code, out, err = run("compile", model, "--dry-run", "--database", costs)
    assert (code, err) == (0, [])
    text = " ".join(" ".join(out).split())
    assert out[0].startswith("main: 1 binding, ") and "only kernels that the plan depends on" in text
    code, out, err = run("compile", model, "--dry-run", "--database", tmp_path / "none.sqlite")
    assert (
        code == 0
        and "at most 3 are measured" in " ".join(" ".join(out).split())
        and not (tmp_path / "none.sqlite").exists()
    )
    code, out, err = run("compile", model, "--dry-run", "-o", program)
    assert (code, out, program.exists()) == (2, [], False) and "-o and --dry-run" in err[0]


def test_nothing_is_measured_by_rule(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unity_collage.processes.child.Child.__init__", None)
    model, program = saved(tmp_path / "m.onnx", PRODUCT), tmp_path / "m.so"
    arguments = ("compile", model, "--no-measure", "--database", tmp_path / "c.sqlite")
    code, out, err = run(*arguments, "-o", program)
    assert (code, err, (tmp_path / "c.sqlite").exists()) == (0, [], False)
    assert out[0] == "main: 1 kernel, nothing measured" and "chosen by rule" in " ".join(out)
    np.testing.assert_allclose(uc.load(program)(np.ones((2, 4), "float32")).numpy(), np.full((2, 3), 4.0))
    code, _, err = run(*arguments, "--report", tmp_path / "plan.json")
    assert code == 2 and "--report explains costs" in err[0]


def test_a_plan_is_compared_with_ours(run: Run, tmp_path: Path, costs: Path) -> None:
    model, plan = saved(tmp_path / "m.onnx", PRODUCT), tmp_path / "mine.json"
    plan.write_text(json.dumps({"main": {"kernels": [{"backend": "tvm", "bindings": ["y"]}]}}))
    code, out, err = run("compare", model, "--plan", plan, "--database", costs, "--json")
    assert (code, err) == (0, [])
    found = json.loads("\n".join(out))["main"]
    assert found["given_kernels"][0]["backend"] == "tvm" and found["loss"] == found["given"] - found["ours"]
    code, out, _ = run("compare", model, "--plan", plan, "--database", costs)
    assert code == 0 and out[0].startswith("main: the given plan costs ")
    plan.write_text(json.dumps({"main": {"kernels": [{"backend": "tvm", "bindings": ["z"]}]}}))
    code, out, err = run("compare", model, "--plan", plan, "--database", costs)
    assert (code, out) == (1, []) and err[0].endswith("main, kernel 1: the model has no binding z")


def test_a_plan_by_a_percentile_says_so(run: Run, tmp_path: Path, costs: Path) -> None:
    model = saved(tmp_path / "m.onnx", PRODUCT)
    code, out, err = run("compile", model, "--percentile", 90, "--database", costs)
    assert (code, err) == (0, []) and "predicted p90 " in out[0] and "measured p90 " in out[0]
    with uc.CostDatabase(costs) as database:
        texts = database.fingerprints().values()
        assert all(any(f"percentile={p} " in text for text in texts) for p in ("50.0", "90.0"))
        enough = [row for row in database.costs() if row.runs >= 54]
    assert enough, "kernels ran more often"


def test_bench_shows_both_runtimes(
    run: Run, tmp_path: Path, costs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "timed_in_turns", partial(timed_in_turns, round_seconds=0.01))
    model = saved(tmp_path / "m.onnx", PRODUCT)
    code, out, err = run("bench", model, "--against", "onnxruntime", "--rounds", 2, "--database", costs)
    assert (code, err) == (0, [])
    assert [line.split()[0] for line in out] == ["runtime", "unity_collage", "onnxruntime"]
    assert out[2].split()[-1] in ("slower", "faster")


def test_backends_are_listed_with_their_versions(run: Run) -> None:
    code, out, _ = run("backends")
    assert code == 0
    assert {"onednn", "openblas", "tvm"} <= {line.split()[0] for line in out if line.strip()}
    assert all(len(line) <= 80 for line in out)


def test_a_backend_that_cannot_be_used_says_why(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unity_collage.runtime.vendors.Vendor.path", lambda self: None)
    _, out, _ = run("backends")
    text = " ".join(" ".join(out).split())
    assert "libdnnl.so.3 is missing: pip install onednn-cpu-gomp" in text


def _garbage(folder: Path) -> list[object]:
    (folder / "text.onnx").write_text("no protobuf")
    return [folder / "text.onnx"]


def _empty(folder: Path) -> list[object]:
    (folder / "empty.onnx").touch()
    return [folder / "empty.onnx"]


def _no_database(folder: Path) -> list[object]:
    (folder / "notes.txt").write_text("these are no costs, but quite some text of mine\n" * 50)
    return [saved(folder / "m.onnx", PRODUCT), "--database", folder / "notes.txt"]


MISTAKES: dict[str, tuple[Callable[[Path], list[object]], str]] = {
    "no file": (lambda f: [f / "no.onnx"], "no.onnx is not a file"),
    "a folder": (lambda f: [f], "is not a file"),
    "no ONNX": (_garbage, "text.onnx is not an ONNX model: "),
    "an empty file": (_empty, "empty.onnx is not an ONNX model: "),
    "an operator that is not imported": (
        lambda f: [saved(f / "m.onnx", helper.make_node("Own", ["x"], ["y"], domain="own.ops"))],
        "own.ops.Own 'y': there is no converter for operators of own.ops",
    ),
    "shapes that do not fit": (
        lambda f: [saved(f / "m.onnx", PRODUCT, weights=5)],
        "MatMul 'y' cannot be converted: ",
    ),
    "an unknown backend": (
        lambda f: [saved(f / "m.onnx", PRODUCT), "--backends", "mkl"],
        "no backend named 'mkl'; there are: onednn, openblas, kernels, cudnn, cublas, tvm",
    ),
    "a database that is none": (_no_database, "notes.txt: file is not a database"),
    "an output in no folder": (
        lambda f: [saved(f / "m.onnx", PRODUCT), "-o", f / "none" / "m.so"],
        "m.so cannot be written: there is no folder",
    ),
    "an output of another kind": (
        lambda f: [saved(f / "m.onnx", PRODUCT), "-o", f / "m.dll"],
        "m.dll: the name of the file ends in .so",
    ),
    "a report in no folder": (
        lambda f: [saved(f / "m.onnx", PRODUCT), "--report", f / "none" / "plan.json"],
        "plan.json cannot be written: there is no folder",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_before_anything_is_measured(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    arguments, reason = MISTAKES[mistake]
    code, out, err = run("compile", *arguments(tmp_path))
    of_words = ("an unknown backend", "an output of another kind")
    assert (code, out, len(err)) == (2 if mistake in of_words else 1, [], 1)
    assert err[0].startswith("unity-collage: ") and reason in err[0]


@pytest.mark.parametrize(
    "arguments", [["compile"], ["--threads", "0", "backends"], ["bench", "m", "--rounds", "x"]]
)
def test_wrong_arguments_are_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert line.startswith("unity-collage: ") and line.endswith(" --help")


def test_one_ctrl_c_gives_the_best_program_so_far(tmp_path: Path) -> None:
    onnx.save(models.load("squeezenet"), tmp_path / "squeezenet.onnx")
    command = [sys.executable, "-m", "unity_collage.cli.main", "compile", str(tmp_path / "squeezenet.onnx"),
               "--database", str(tmp_path / "costs.sqlite"), "-o", str(tmp_path / "program.so")]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "measuring" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "the best program so far follows" in err and "main: " in out
    assert (tmp_path / "program.so").exists()


def test_a_second_ctrl_c_keeps_the_costs_and_ends_the_worker(tmp_path: Path) -> None:
    onnx.save(models.load("squeezenet"), tmp_path / "squeezenet.onnx")
    database = uc.CostDatabase(tmp_path / "costs.sqlite")
    command = [sys.executable, "-m", "unity_collage.cli.main", "compile", str(tmp_path / "squeezenet.onnx"),
               "--database", str(database.path)]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 600
        while len(database) < 3 and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        workers = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "Ctrl-C again" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)  # sooner, while native code runs, both count as one
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (130, ""), err
    assert err.endswith("unity-collage: interrupted; all costs measured so far are stored\n")
    assert len(database) >= 3
    assert workers
    assert not psutil.wait_procs(workers, timeout=10)[1]


def kernel(backend: str, label: str, seconds: float, **others: float) -> PlannedKernel:
    rivals = tuple(Rival(name, cost) for name, cost in others.items())
    return PlannedKernel(0, backend, label, "", (), seconds, others=rivals)


def shown(plan: Plan, width: int = 80) -> list[str]:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(plan_summary("main", plan))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_summary_fits_a_narrow_terminal_with_one_line_a_row() -> None:
    label = "permute_dims+reshape+permute_dims+matmul+add+relu"
    kernels = [
        kernel("onednn", label, 30e-6, tvm=45e-6),
        kernel("onednn", label, 30e-6, tvm=45e-6, openblas=900e-6),
        kernel("tvm", "relu", 40e-9, onednn=8e-3),
        *(kernel("tvm", f"exp{number}", 1e-9) for number in range(20)),
    ]
    reason = "TVM makes 0 kernels of it, not one"
    lines = shown(Plan(tuple(kernels), seconds=61e-6, without_cost=(WithoutCost("tvm", "split", reason),)))
    assert max(map(len, lines)) <= 80
    assert lines[0] == "main: 23 kernels, predicted 61.0 us"
    assert [line.split()[-3:] for line in lines if line.startswith(" onednn")] == [["60.0", "us", "98.4%"]]
    assert [line.split()[-5:] for line in lines if "permute" in line] == [
        ["60.0", "us", "98.4%", "tvm", "1.50x"]
    ]
    assert [line.split() for line in lines if line.startswith(" relu")] == [
        ["relu", "tvm", "1", "40", "ns", "0.1%", "onednn", ">10x"]
    ]
    assert lines[-4].split() == ["(7", "kinds", "more)", "7", "7", "ns", "0.0%"]
    assert " ".join(lines[-2:]) == f"1 candidate without a cost, such as tvm split: {reason}"


def test_a_function_without_kernels_says_so() -> None:
    assert shown(Plan()) == ["main: nothing has a cost, TVM compiles it as it is"]


def test_the_bench_table_says_who_is_faster() -> None:
    medians = {"unity_collage": [2e-3, 1e-3, 3e-3], "slow": [4e-3] * 3, "fast": [1e-3] * 3}
    console = Console(width=80)
    with console.capture() as captured:
        console.print(bench_table(medians, "unity_collage", {"slow": 2.0, "fast": 0.5}))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert lines[1].split() == ["unity_collage", "2.00", "ms", "1.00", "ms", "3.00", "ms"]
    assert lines[2].endswith("2.00x slower") and lines[3].endswith("2.00x faster")


def test_a_program_far_from_its_cost_is_told() -> None:
    plan = Plan((kernel("tvm", "any", 20e-3),), seconds=20e-3)
    assert cost_remark(plan, 25e-3) is None
    assert cost_remark(replace(plan, seconds=1e-6), 9e-6) is None, "a call costs microseconds of its own"
    assert cost_remark(Plan(), 1.0) is None
    remark = cost_remark(plan, 150e-3)
    assert remark is not None and remark.startswith("it takes 7.5 times as long") and "20.0 ms" in remark


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ns"),
        (34e-12, "0 ns"),
        (2.7e-7, "270 ns"),
        (1.234e-6, "1.23 us"),
        (0.0456, "45.6 ms"),
        (123.4, "123 s"),
    ],
)
def test_durations_have_three_digits(seconds: float, text: str) -> None:
    assert duration(seconds) == text
