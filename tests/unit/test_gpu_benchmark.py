"""The benchmark for GPUs, as far as there needs to be none: its options, its processes, its results."""

from __future__ import annotations

import gc
import json
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpu import child, report
from gpu.__main__ import NAMES, jobs_of, options_of, settings_of
from gpu.child import with_plan_error
from gpu.failures import CaptureFailed, capturing, reason_of
from gpu.jobs import COMPILED, EAGER, OURS, Job, Settings, backends_of, competitor_of, competitors
from gpu.machine import missing_peers
from gpu.parent import Runner

KEPT = Path(__file__).parents[2] / "benchmarks" / "results" / "gpu_h200.json"
JOBS = [Job("a", 1, "f32", (EAGER, OURS)), Job("b", 16, "f16", (EAGER, OURS))]


def options(*arguments: str):
    return options_of([*arguments, "--out", "found.json"])


def test_all_networks_precisions_and_batches_are_run_by_default() -> None:
    jobs = jobs_of(options())
    assert len(jobs) == len(NAMES) * 3 * 2
    found = {(job.precision, job.batch) for job in jobs}
    assert found == {(precision, batch) for precision in ("f32", "tf32", "f16") for batch in (1, 16)}
    assert jobs[0].competitors[-1] == COMPILED  # takes longest


def test_options_choose_jobs_and_settings() -> None:
    chosen = ["--models", "gpt2", "--precision", "f16", "--batch", "4", "--alone", "--calls", "2"]
    asked = options(*chosen, "--without", COMPILED)
    (job,) = jobs_of(asked)
    assert (job.title, COMPILED in job.competitors) == ("gpt2 batch 4 f16", False)
    alone = [backends_of(name) for name in job.competitors if name.startswith("ours: ")]
    assert alone == [["cudnn"], ["cublas"], ["tvm"]]
    assert settings_of(asked).calls == 2 and settings_of(asked).mode == "max-autotune"


@pytest.mark.parametrize("wrong", [["--models", "alexnet"], ["--batch", "0"], ["--precision", "f64"]])
def test_what_there_is_not_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options(*wrong)
    assert wrong[1] in capsys.readouterr().err


def test_ours_has_all_backends_and_alone_has_one() -> None:
    assert backends_of(OURS) is None
    assert set(competitors(alone=True)) - set(competitors(alone=False)) == {
        "ours: cudnn",
        "ours: cublas",
        "ours: tvm",
    }


def test_a_job_is_the_same_after_json() -> None:
    job = JOBS[0].without(EAGER, "it was killed")
    assert Job.from_json(json.loads(json.dumps(job.to_json()))) == job


# Processes

CHILD = """
import json, os, sys, time
def tell(**event):
    print(json.dumps(event), flush=True)
for job in json.load(sys.stdin)["jobs"]:
    for name in job["competitors"]:
        if name in job["failed"]:
            continue
        tell(event="begin", step=name + {after!r})
        if (job["model"], name) == ("a", "ours"):
            {how}
        tell(event="end", step=name)
    results = {{n: {{"reason": job["failed"][n]}} if n in job["failed"] else {{}} for n in job["competitors"]}}
    tell(event="row", row={{"model": job["model"], "results": results}})
"""


def rows_of(how: str, after: str = "", **limits: float) -> tuple[list[dict], list[Job]]:
    rows: list[dict] = []
    command = (sys.executable, "-c", CHILD.format(how=how, after=after))
    left = Runner(Settings(), rows.append, lambda _: None, command=command, **limits).run(JOBS)
    return rows, left


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("os._exit(70)", "the process ended with code 70"),
        ("os.kill(os.getpid(), 9)", "the process ended with code -9"),
        ('tell(event="failed", step=name, reason="no kernel"); os._exit(70)', "no kernel"),
        ("time.sleep(60)", "it took longer than 2 s"),
    ],
    ids=["exit", "killed", "device lost", "too long"],
)
def test_a_competitor_that_ends_its_process_is_a_reason_in_its_row(how: str, reason: str) -> None:
    rows, left = rows_of(how, limit=2.0)
    assert [row["model"] for row in rows] == ["a", "b"] and left == []
    assert rows[0]["results"] == {EAGER: {}, OURS: {"reason": reason}}
    assert rows[1]["results"] == {EAGER: {}, OURS: {}}


@pytest.mark.parametrize("after", [": result", ": warm-up"])
def test_a_later_step_is_that_of_its_competitor(after: str) -> None:
    rows, _ = rows_of("os._exit(70)", after)
    assert rows[0]["results"][OURS] == {"reason": "the process ended with code 70"}
    assert competitor_of(f"ours: cudnn{after}") == "ours: cudnn"


def test_what_there_is_no_time_for_is_told() -> None:
    rows, left = rows_of("time.sleep(60)", end=time.monotonic() + 2)
    assert rows == [] and left == JOBS


def test_a_process_that_does_not_start_is_a_reason_in_each_row() -> None:
    rows: list[dict] = []
    command = (sys.executable, "-c", "import sys; sys.exit(3)")
    assert Runner(Settings(), rows.append, lambda _: None, command=command).run(JOBS) == []
    assert [row["reason"] for row in rows] == ["start: the process ended with code 3"] * 2


# Captures


def failing(device: str) -> Callable[[], None]:
    def run() -> None:
        with capturing(device):
            raise RuntimeError("operation not permitted when stream is capturing")

    return run


class Ended(BaseException):
    """In place of the end of the process."""


def measurement(monkeypatch: pytest.MonkeyPatch, heard: list[dict[str, Any]]) -> child.Measurement:
    def end(code: int) -> None:
        assert code == child.BROKEN
        raise Ended

    monkeypatch.setattr(child.os, "_exit", end)
    return child.Measurement(JOBS[0], Settings(device="cpu", warm_up=3), heard.append)


def test_a_failure_in_a_capture_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[dict[str, Any]] = []
    with pytest.raises(Ended):
        measurement(monkeypatch, heard)._step(EAGER, failing("cuda"))
    assert [event["event"] for event in heard] == ["begin", "failed"]
    assert heard[1]["reason"].startswith("CaptureFailed: RuntimeError: operation not permitted")


def test_a_failure_outside_is_a_reason_and_the_process_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(child.Failed, match=r"^RuntimeError: operation not permitted"):
        measurement(monkeypatch, [])._step(OURS, failing("cpu"))


def test_all_are_warmed_up_and_those_that_fail_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def broken() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    running = {
        EAGER: SimpleNamespace(run=broken),
        OURS: SimpleNamespace(run=lambda: calls.append(OURS)),
    }
    failed = measurement(monkeypatch, [])._warmed_up(running)
    assert (list(running), calls) == ([OURS], [OURS] * 3)
    assert failed == {EAGER: {"reason": "RuntimeError: an illegal memory access was encountered"}}


def captured(monkeypatch: pytest.MonkeyPatch, graph: Any) -> tuple[Any, weakref.ref[Any]]:
    """A competitor whose graph is captured without a device, and its module."""
    torch = pytest.importorskip("torch")
    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name, fake in {
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": lambda _: nullcontext(),
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
        "graph": graph,
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    from gpu.competitors import Competitors
    from gpu.models import Network

    network = Network(torch.nn.Linear(2, 2), (torch.ones(1, 2),), is_image=False)
    made = Competitors(network, JOBS[0], Settings(device="cpu"))
    module, inputs = made._module()
    monkeypatch.setattr(made, "_module", lambda: (module, inputs))
    made._settings = SimpleNamespace(device="cuda")
    return made, weakref.ref(module)


def test_a_graph_does_not_outlive_the_weights_that_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    made, module = captured(monkeypatch, lambda graph: nullcontext())
    competitor = made.made(EAGER)
    del made
    monkeypatch.undo()  # what still refers to the module
    gc.collect()
    assert module() is not None
    del competitor
    gc.collect()
    assert module() is None


def test_a_capture_that_fails_is_not_tried_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(graph: Any) -> Any:
        raise RuntimeError("out of memory")

    made, _ = captured(monkeypatch, refused)
    with pytest.raises(CaptureFailed, match="RuntimeError: out of memory"):
        made.made(EAGER)


# Results


def row(**seconds: float) -> dict:
    results = {
        name: {"seconds": each, "measured_by": "events", "error": 1e-6} for name, each in seconds.items()
    }
    return {"model": "a", "batch": 1, "precision": "f32", "results": results}


def test_the_ratio_is_that_of_the_fastest_peer_to_ours() -> None:
    found = row(**{EAGER: 4e-3, COMPILED: 3e-3, OURS: 2e-3, "ours: tvm": 1e-3})
    assert report.ratio(found) == pytest.approx(1.5)
    assert report.ratio(row(**{EAGER: 4e-3})) is None


def test_lines_have_times_and_reasons() -> None:
    found = row(**{EAGER: 4e-3, OURS: 2e-3})
    found["results"][COMPILED] = {"reason": "it took longer than 240 s"}
    head, *lines = report.lines_of(found)
    assert head == "a batch 1 f32: fastest peer / ours 2.00x"
    assert "4.0000 ms, error 1.0e-06" in lines[0] and lines[2].endswith("it took longer than 240 s")


def test_what_is_kept_is_what_a_run_writes() -> None:
    kept = json.loads(KEPT.read_text())
    assert Settings(**kept["settings"]) == Settings(
        mode="reduce-overhead", budget_seconds=10.0, database="costs.sqlite"
    )
    assert len(kept["rows"]) == 10 and all(report.ratio(row) for row in kept["rows"])
    for row in kept["rows"]:
        ours = row["results"][OURS]
        assert ours == with_plan_error(OURS, ours) and sum(ours["kernels"].values()) > 20
        assert "fastest peer / ours" in report.lines_of(row)[0]


def test_the_file_is_written_after_each_row(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    results = report.Results(path, {"gpu_before": {}})
    results.add(row(**{OURS: 1e-3}))
    assert len(json.loads(path.read_text())["rows"]) == 1
    results.finish(not_run=["b"])
    assert json.loads(path.read_text())["not_run"] == ["b"]
    assert [each.name for each in tmp_path.iterdir()] == ["found.json"]


def test_the_additive_error_is_that_of_the_plan() -> None:
    assert with_plan_error(OURS, {"seconds": 3.0, "plan_seconds": 2.0})["additive_error"] == 0.5
    assert "additive_error" not in with_plan_error(EAGER, {"seconds": 3.0})


def test_a_reason_is_one_line() -> None:
    assert reason_of(ValueError("first\nsecond")) == "ValueError: first"
    assert len(reason_of(ValueError("x" * 999))) == 300


def test_peers_that_are_missing_have_a_reason() -> None:
    assert set(missing_peers()) == {"TensorRT", "ONNX Runtime, CUDA"} and all(missing_peers().values())


# What torch is needed for


def test_the_networks_are_those_of_the_options() -> None:
    pytest.importorskip("torch")
    from gpu import models

    assert models.names() == list(NAMES)


@pytest.mark.parametrize(
    ("samples", "by"), [([(2.0, 2.1), (3.0, 3.1), (4.0, 4.1)], "events"), ([(0.1, 2.0)], "host")]
)
def test_work_beside_the_stream_is_measured_by_the_host(samples: list, by: str) -> None:
    pytest.importorskip("torch")
    from gpu.timing import summary

    found = summary(samples)
    assert (found["measured_by"], found["seconds"]) == (by, 3.0 if by == "events" else 2.0)


def test_competitors_take_turns() -> None:
    pytest.importorskip("torch")
    from gpu.timing import in_turns

    order: list[str] = []
    runs = {"a": lambda: order.append("a"), "b": lambda: order.append("b"), "slow": lambda: time.sleep(2e-3)}
    found = in_turns(runs, 2, 4, "cpu")
    assert "".join(order) == "aabb" + "bbaa" + "aabb" * 2  # each round begins with another one
    assert found["slow"]["seconds"] >= 2e-3 > found["a"]["seconds"]
    assert (len(found["a"]["event_seconds"]), found["a"]["calls"]) == (4, 2)


def test_batch_norms_take_their_statistics_from_the_images() -> None:
    torch = pytest.importorskip("torch")
    from gpu.models import _calibrate

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Dropout())
    images = 5 + 3 * torch.randn(4, 3, 16, 16)
    _calibrate(module, images)
    found = module.eval()(images)
    assert module[1].momentum == 0.1
    torch.testing.assert_close(found.std((0, 2, 3)), torch.ones(4), atol=1e-2, rtol=0)


@pytest.mark.parametrize(("name", "module"), [("mobilenet_v2", "torchvision"), ("bert-base", "transformers")])
def test_a_network_is_the_same_each_time(name: str, module: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip(module)
    from gpu.models import network

    first, second = network(name, 2), network(name, 2)
    assert not first.module.training and first.inputs[0].shape[0] == 2
    with torch.no_grad():
        torch.testing.assert_close(first.module(*first.inputs), second.module(*second.inputs))
