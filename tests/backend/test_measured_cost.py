"""MeasuredCost: real kernels in a worker process; whatever goes wrong there is a reason, never the end."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.annotations import COSTS
from unity_collage.cost.client import WorkerClient
from unity_collage.cost.inputs import random_inputs
from unity_collage.cost.kernels import why_wrong
from unity_collage.cost.measured import MeasuredCost
from unity_collage.cost.method import Method
from unity_collage.passes import AnnotateCandidates, EstimateCosts

QUICK = Method(warmup_seconds=0.0, min_runs=3, max_runs=3, min_seconds=0.0)


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


def test_every_candidate_gets_a_price_once_and_then_comes_from_the_database(tmp_path) -> None:
    database = uc.CostDatabase(tmp_path / "costs.sqlite")
    asked: list[str] = []
    model = MeasuredCost(database, method=QUICK, progress=lambda done, total, label: asked.append(label))
    with uc.host_target():
        mod = AnnotateCandidates(("onednn", "openblas", "tvm"))(layer())
        first = COSTS.read(EstimateCosts(model)(mod)["main"])
        again = COSTS.read(EstimateCosts(model)(mod)["main"])
    assert {key.split(":")[0] for key in first.prices} == {"onednn", "openblas", "tvm"}
    assert all(cost.seconds is not None and cost.runs == 3 for cost in first.prices.values())
    assert {cost.origin for cost in again.prices.values()} == {"database"}
    assert sum(bool(label) for label in asked) == len(first.prices)
    assert first.launch_seconds == again.launch_seconds > 0


def ask(code: str, timeout_seconds: float = 20.0) -> dict[str, object]:
    """What the client makes of a worker that runs ``code`` instead of a kernel."""
    with WorkerClient(1, QUICK, timeout_seconds, command=("-c", _PRELUDE + code)) as client:
        return client.ask({"ask": "anything"})


_PRELUDE = "import os, signal, socket, sys, time\nc = socket.socket(fileno=int(sys.argv[1]))\nc.recv(9999)\n"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the kernel crashed the process: SIGSEGV"),
        ("sys.exit(3)", "the kernel ended the process with exit code 3"),
        ("os._exit(0)", "the kernel ended the process with exit code 0"),
    ],
)
def test_the_end_of_the_worker_is_a_reason(code: str, reason: str) -> None:
    assert ask(code) == {"reason": reason}


def test_a_hang_is_a_reason() -> None:
    assert ask("time.sleep(60)", timeout_seconds=0.5) == {"reason": "no answer within 0.5 s", "timeout": True}


def test_wrong_numbers_are_a_reason() -> None:
    right = [np.array([1.0, 2.0], "float32")]
    assert why_wrong([right[0] * np.float32(1.00001)], right, 1e-4) is None
    assert "off by 5.0e-01 of its range" in str(why_wrong([np.array([1.0, 1.0], "float32")], right, 1e-4))
    assert "not finite" in str(why_wrong([np.array([1.0, np.nan], "float32")], right, 1e-4))


def test_indexes_stay_within_the_table_and_differ() -> None:
    x = relax.Var("x", relax.TensorType((5, 8), "float32"))
    i = relax.Var("i", relax.TensorType((64,), "int64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, i]):
        with builder.dataflow():
            value = builder.emit_output(R.take(x, i, axis=0))
        builder.emit_func_output(value)
    _, indexes = random_inputs(builder.get()["main"])
    assert indexes.min() >= 0 and indexes.max() == 4 and len(np.unique(indexes)) == 5
