"""MeasuredCost: real kernels in a worker process; whatever goes wrong there is a reason, never the end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage import runtime
from unity_collage.annotations import COSTS
from unity_collage.cost.asking import workloads
from unity_collage.cost.method import Method
from unity_collage.database.costs import CostDatabase
from unity_collage.database.rows import FailureKind
from unity_collage.machine import environment
from unity_collage.measure import measured
from unity_collage.measure.client import LATE, Answer, Worker, WorkerClient
from unity_collage.measure.measured import MeasuredCost
from unity_collage.measure.refusal import Refusal
from unity_collage.measure.remote.messages import decoded, encoded
from unity_collage.passes import AnnotateCandidates, EstimateCosts
from unity_collage.plan.costs import Cost

Made = Callable[[str, float], WorkerClient]

QUICK = Method(min_runs=3, max_runs=3, max_warmup_seconds=0.0, max_seconds=60.0)


def layer() -> IRModule:
    weights = relax.const(np.random.default_rng(0).standard_normal((32, 16), dtype="float32"))
    x = relax.Var("x", relax.TensorType((4, 32), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(R.matmul(x, weights))
            result = builder.emit_output(R.nn.relu(product))
        builder.emit_func_output(result)
    return builder.get()


def test_every_candidate_gets_a_cost_once_and_then_comes_from_the_database(tmp_path) -> None:
    database = uc.CostDatabase(tmp_path / "costs.sqlite")
    asked: list[str] = []
    model = MeasuredCost(database, method=QUICK, progress=lambda done, total, label: asked.append(label))
    with uc.host_target(), model:
        mod = AnnotateCandidates(("onednn", "openblas", "tvm"))(layer())
        first = COSTS.read(EstimateCosts(model)(mod)["main"])
        again = COSTS.read(EstimateCosts(model)(mod)["main"])
    assert {key.split(":")[0] for key in first.by_key} == {"onednn", "openblas", "tvm"}
    assert all(cost.seconds is not None and cost.runs == 3 for cost in first.by_key.values())
    assert all(0 < cost.low <= cost.seconds <= cost.high for cost in first.by_key.values())
    assert {cost.origin for cost in again.by_key.values()} == {"database"}
    kernels = [label for label in asked if label.startswith("measuring ") and "this machine" not in label]
    assert len(kernels) == 1 and kernels[0].endswith(" and 3 more")  # all in one question
    assert first.launch_seconds == again.launch_seconds > 0
    assert not database.quarantine_entries()


def test_what_is_timed_together_is_kept_as_one_answer(tmp_path) -> None:
    database = uc.CostDatabase(tmp_path / "costs.sqlite")
    with uc.host_target(), MeasuredCost(database, method=QUICK) as model:
        func = AnnotateCandidates(("onednn", "tvm"))(layer())["main"]
        asked = list({workload.key: workload for workload in workloads(func, model).values()}.values())
        model.costs(asked)
        found, again = model.confirmed(asked), model.confirmed(asked[::-1])
    assert set(found) == {workload.key for workload in asked}
    assert all(0 < cost.low <= cost.seconds <= cost.high and cost.runs >= 5 for cost in found.values())
    assert {key: cost.seconds for key, cost in again.items()} == {key: c.seconds for key, c in found.items()}
    assert {cost.origin for cost in again.values()} == {"database"}
    with uc.host_target(), MeasuredCost(database, method=QUICK, locked=True) as locked:
        assert locked.confirmed(asked) == again
        assert locked.confirmed(asked[1:]) == {}


def test_a_doubtful_answer_holds_where_nothing_came_of_measuring_it_again(tmp_path, monkeypatch) -> None:
    """A locked compile reads it, so it has to be what the compile before has used."""
    database = uc.CostDatabase(tmp_path / "costs.sqlite")
    with uc.host_target():
        func = AnnotateCandidates(("tvm",))(layer())["main"]
        with MeasuredCost(database, method=QUICK) as model:
            asked = list(workloads(func, model).values())
            model.costs(asked)
            keep = CostDatabase.keep_fact
            monkeypatch.setattr(CostDatabase, "keep_fact", lambda *of: keep(*of[:4], True))
            found = model.confirmed(asked)
        monkeypatch.setattr(measured, "costs_in_turns", lambda *_: {})
        with MeasuredCost(database, method=QUICK) as model:
            again = model.confirmed(asked)
    assert found and {key: cost.seconds for key, cost in again.items()} == {
        key: cost.seconds for key, cost in found.items()
    }


def test_another_worker_builds_what_it_times_together(tmp_path) -> None:
    with uc.host_target(), MeasuredCost(uc.CostDatabase(tmp_path / "costs.sqlite"), method=QUICK) as model:
        func = AnnotateCandidates(("onednn", "tvm"))(layer())["main"]
        found = model.confirmed(list(workloads(func, model).values()))
    assert found
    assert all(cost.seconds > 0 for cost in found.values())


@pytest.fixture(scope="module")
def worker() -> WorkerClient:
    """A real worker process, for questions that need one."""
    with WorkerClient(runtime.num_threads(), QUICK, 60.0) as client:
        yield client


def test_a_worker_has_the_threads_cores_and_settings_of_this_process(worker: WorkerClient) -> None:
    found = worker.ask({"ask": "environment"})
    here = environment.described()
    here["environment"]["OPENBLAS_NUM_THREADS"] = "1"
    assert found == here
    assert set(found["cores"]) == os.sched_getaffinity(0)


def test_a_bound_thread_does_not_bind_the_worker() -> None:
    own = os.sched_getaffinity(0)
    if len(own) < 2:
        pytest.skip("one core cannot be told from all")
    # Any other thread of the process, OpenMP's for one, still may use all cores.
    runtime.time_in_turns([runtime_runner()], max_runs=1, min_runs=1)
    os.sched_setaffinity(0, {min(own)})
    try:
        with environment.on_usable_cores():
            assert os.sched_getaffinity(0) == own
        assert os.sched_getaffinity(0) == {min(own)}
    finally:
        os.sched_setaffinity(0, own)


def runtime_runner() -> runtime.Runner:
    """A kernel for the pool: writing a tensor on all its threads."""
    import tvm

    tensor = tvm.runtime.empty((1 << 16,), "float32")
    return runtime.Runner(tvm.get_global_func("collage.runtime.num_threads"), [], [tensor])


def test_a_worker_answers_again_after_a_broken_question(worker: WorkerClient) -> None:
    assert "KeyError" in worker.ask({"ask": "cost"})["reason"]
    assert worker.ask({"ask": "environment"})["threads"] == runtime.num_threads()


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """A client whose worker runs some code in place of ours, without TVM, which takes long to import."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "tvm").mkdir()
    for name in ("__init__", "relax"):
        (tmp_path / "tvm" / f"{name}.py").touch()
    made: list[WorkerClient] = []

    def of(code: str, timeout_seconds: float) -> WorkerClient:
        (tmp_path / "typed_worker.py").write_text(code)
        made.append(WorkerClient(1, QUICK, timeout_seconds, worker=Worker("typed_worker")))
        return made[-1]

    yield of
    for each in made:
        each.close()


_PRELUDE = """
import json, os, signal, socket, sys, time
c = socket.socket(fileno=int(sys.argv[1]))
r = c.makefile("r")
r.readline()
say = lambda **m: c.sendall(json.dumps(m).encode() + b"\\n")
say(ready=True)
r.readline()
say(stage="running", key="kernel")
"""


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", FailureKind.CRASH, "it crashed the process: SIGSEGV"),
        ("os.abort()", FailureKind.CRASH, "it crashed the process: SIGABRT"),
        ("sys.exit(3)", FailureKind.EXITED, "it ended the process with exit code 3"),
        ("os._exit(0)", FailureKind.EXITED, "it ended the process with exit code 0"),
        ("os.closerange(3, 1000); say(done=True)", FailureKind.EXITED, "with exit code 1"),
        (
            "c.sendall(os.urandom(999) + b'\\n'); time.sleep(3600)",
            FailureKind.RUN_ERROR,
            "something wrote to",
        ),
        (
            "say(fault='it is spoilt', kind='run error'); time.sleep(3600)",
            FailureKind.RUN_ERROR,
            "it is spoilt",
        ),
    ],
)
def test_the_end_of_the_worker_is_a_reason(client: Made, code: str, kind: FailureKind, reason: str) -> None:
    refusal = client(_PRELUDE + code, 300.0).compare({"ask": "cost"}, {"kernel": {}})["kernel"]
    assert isinstance(refusal, Refusal)
    assert refusal.kind == kind and reason in refusal.reason and refusal.lasting


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_a_worker_that_is_ended_from_outside_accuses_nobody(client: Made, name: str) -> None:
    code = f"signal.signal(signal.SIGINT, signal.SIG_DFL); os.kill(os.getpid(), signal.{name})"
    refusal = client(_PRELUDE + code, 300.0).compare({"ask": "cost"}, {"kernel": {}})["kernel"]
    assert isinstance(refusal, Refusal) and refusal.kind is None and not refusal.lasting
    assert f"ended from outside: {name}" in refusal.reason


@pytest.mark.parametrize("end", ["os.abort()", "os.kill(os.getpid(), signal.SIGKILL)", "time.sleep(3600)"])
def test_what_happens_once_is_no_refusal(client: Made, tmp_path: Path, end: str) -> None:
    before = tmp_path / "before"
    code = f"""
from pathlib import Path
if not Path({str(before)!r}).exists():
    Path({str(before)!r}).touch()
    {end}
say(key="kernel", seconds=1.0, low=1.0, high=1.0, runs=1, doubtful=False)
say(done=True)
time.sleep(3600)
"""
    answer = client(_PRELUDE + code, 5.0).compare({"ask": "cost"}, {"kernel": {}})["kernel"]
    assert answer == Cost(1.0, 1.0, 1.0, 1)


@pytest.mark.parametrize(
    ("stage", "kind"), [("running", FailureKind.HANG), ("building", None)], ids=["a hang", "a slow compiler"]
)
def test_silence_is_a_reason_and_a_slow_compiler_may_be_a_busy_machine(
    client: Made, stage: str, kind: FailureKind | None
) -> None:
    """The stage is said together with the greeting, so that it is there however busy the machine is."""
    code = f"""
import json, socket, sys, time
c = socket.socket(fileno=int(sys.argv[1]))
said = [dict(ready=True), dict(stage={stage!r}, key="kernel")]
c.sendall(b"".join(json.dumps(message).encode() + b"\\n" for message in said))
time.sleep(3600)
"""
    answer = client(code, 0.5).compare({"ask": "cost"}, {"kernel": {}})["kernel"]
    assert answer == Refusal(f"no answer within 0.5 s while {stage}", kind, lasting=kind is not None)


def test_a_worker_that_cannot_start_says_why(client: Made) -> None:
    answer = client("import no_such_thing", 300.0).compare({"ask": "cost"}, {"kernel": {}})["kernel"]
    assert isinstance(answer, Refusal) and not answer.lasting
    assert "No module named 'no_such_thing'" in answer.reason


def test_the_one_of_several_that_ends_the_worker_is_found_out(client: Made) -> None:
    code = """
while True:
    say(stage="timing", key=None)
    keys = list(json.loads(line)["candidates"])
    if "bad" in keys: os._exit(1)
    for key in keys: say(key=key, seconds=1.0, low=1.0, high=1.0, runs=1, doubtful=False)
    say(done=True)
    line = r.readline()
    if not line: break
"""
    prelude = _PRELUDE.replace('r.readline()\nsay(stage="running", key="kernel")', "line = r.readline()")
    answers = client(prelude + code, 300.0).compare({"ask": "cost"}, {"good": {}, "bad": {}, "fair": {}})
    assert isinstance(answers["bad"], Refusal) and answers["bad"].kind == FailureKind.EXITED
    assert not isinstance(answers["good"], Refusal) and not isinstance(answers["fair"], Refusal)


def test_kernels_that_the_worker_had_no_time_for_are_late_and_not_refused(client: Made) -> None:
    code = """
say(key="first", seconds=1.0, low=1.0, high=1.0, runs=1, doubtful=False)
say(done=True, late=True)
"""
    answers = client(_PRELUDE + code, 300.0).compare(
        {"ask": "cost"}, {"first": {}, "second": {}, "third": {}}
    )
    assert isinstance(answers["first"], Cost)
    assert answers["second"] == answers["third"] == LATE


@pytest.mark.parametrize(
    "answer",
    [LATE, Refusal("it crashes", FailureKind.CRASH), Cost(2e-6, 1e-6, 9e-6, 5, is_doubtful=True)],
    ids=["late", "refused", "doubtful"],
)
def test_answers_of_servers_arrive_as_they_are(answer: Answer) -> None:
    assert decoded(json.loads(json.dumps(encoded(answer)))) == answer


_OF_SEVERAL = _PRELUDE.replace("r.readline()\nsay(stage", "line = r.readline()\nsay(stage").replace(
    'say(stage="running", key="kernel")', ""
)


@pytest.mark.parametrize("stage", ["building ahead", "computing the reference"])
def test_what_ends_the_worker_before_any_kernel_runs_is_looked_for_by_computation(
    client: Made, tmp_path: Path, stage: str
) -> None:
    code = f"""
while True:
    asked = list(json.loads(line)["candidates"])
    with open({str(tmp_path / "asked")!r}, "a") as file: print(*asked, file=file)
    say(stage={stage!r}, key=None)
    if "bad" in asked: os.abort()
    for key in asked: say(key=key, seconds=1.0, low=1.0, high=1.0, runs=1, doubtful=False)
    say(done=True)
    line = r.readline()
    if not line: break
"""
    candidates = {"good": {"digest": "1"}, "rival": {"digest": "1"}, "bad": {"digest": "2"}}
    answers = client(_OF_SEVERAL + code, 300.0).compare({"ask": "cost"}, candidates)
    assert isinstance(answers["bad"], Refusal) and answers["bad"].kind == FailureKind.CRASH
    assert isinstance(answers["good"], Cost) and isinstance(answers["rival"], Cost)
    assert (tmp_path / "asked").read_text().splitlines() == ["good rival bad", "good rival", "bad"]
