"""cuDNN, cuBLAS and TVM on the device: the conformance kit, whole models, streams, and kernels that misbehave."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_backends import OFFSETS
from device_models import CONV_NET, IMAGE, MOBILE_NET
from test_program import on_device, own_stream
from tvm import tirx
from tvm.ir import IRModule

import unity_collage as uc
from unity_collage import reference
from unity_collage.annotations import UNSCHEDULED
from unity_collage.cost.asking import workloads
from unity_collage.cost.method import Method
from unity_collage.database.costs import CostDatabase, FailureKind
from unity_collage.measure.cuda.cost import CudaCost
from unity_collage.passes import AnnotateCandidates
from unity_collage.plan.plan import PlannedKernel
from unity_collage.target import cuda_target
from unity_collage.testing import fake_backend, graphs
from unity_collage.testing.conformance import CheckState, examine

ERRORS = {"f32": 1e-5, "f16": 1e-2, "tf32": 5e-3}
"""The largest relative error of a result, as the norm of the difference over the norm of what is right."""

QUICK = Method(min_runs=9, max_runs=9)
NOT_BOUND = 100.0
"""A kernel that is not bound to threads takes at least this many times as long as one that is."""

NO_ENGINE = "cuDNN has only 0 engines for it"
"""Which convolutions no engine can run is known to the library alone: such kernels have no cost."""


# The conformance kit


@pytest.mark.parametrize("name", ["cudnn", "cublas"])
def test_a_backend_keeps_its_promises(name: str) -> None:
    report = examine(name, timeout_seconds=300.0)
    assert report.unavailable is None
    broken = {verdict.check: verdict.findings for verdict in report.failed}
    broken["made"] = tuple(finding for finding in broken.get("made", ()) if NO_ENGINE not in finding)
    assert {check: findings for check, findings in broken.items() if findings} == {}, str(report)
    skipped = {verdict.check for verdict in report.verdicts if verdict.state is CheckState.SKIPPED}
    assert skipped == {"outputs", "threads"}, str(report)


# Whole models


def compiled(model: Any, folder: Path, precision: str, *example: Any) -> uc.Program:
    with CostDatabase(folder / "costs.db") as database:
        return uc.compile(
            model, *example, target="cuda", precision=precision, database=database, explain=True
        )


@pytest.fixture(scope="module", params=["f32", "tf32", "f16"])
def precision(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def conv_program(precision: str, tmp_path_factory: pytest.TempPathFactory) -> uc.Program:
    return compiled(IRModule({"main": CONV_NET}), tmp_path_factory.mktemp("conv"), precision)


@pytest.fixture(scope="module")
def layer() -> tuple[Any, Any, np.ndarray]:
    """A layer of a transformer, an input, and the result."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, activation="gelu").eval()
    x = torch.randn(2, 64, 128)
    with torch.no_grad():
        return module, x, module(x).numpy()


@pytest.fixture(scope="module")
def layer_program(layer: Any, precision: str, tmp_path_factory: pytest.TempPathFactory) -> uc.Program:
    module, x, _ = layer
    return compiled(module, tmp_path_factory.mktemp("layer"), precision, (x,))


def close(got: Any, expected: np.ndarray, precision: str) -> None:
    found = np.asarray(got)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    error = np.linalg.norm(found.astype("float64") - expected) / np.linalg.norm(expected)
    assert error < ERRORS[precision], error


def conv_net_result() -> np.ndarray:
    (found,) = reference.run(CONV_NET, [IMAGE])
    return found


def check_bound_to_threads(program: uc.Program) -> None:
    """No kernel runs in one thread, and none costs as much as if it did."""
    kernels = {g.name_hint: f for g, f in program.mod.functions_items() if isinstance(f, tirx.PrimFunc)}
    assert {
        name: str(f.attrs[UNSCHEDULED]) for name, f in kernels.items() if UNSCHEDULED in (f.attrs or {})
    } == {}
    for kernel in program.plan["main"].kernels:
        seconds = list(costs_of(kernel))
        assert max(seconds) < NOT_BOUND * min(seconds), kernel


def costs_of(kernel: PlannedKernel) -> Iterator[float]:
    """The costs of a kernel of the plan and of its rivals."""
    yield kernel.seconds
    yield from (rival.seconds for rival in kernel.others if rival.seconds)


def test_a_convolution_network_is_right(conv_program: uc.Program, precision: str) -> None:
    close(conv_program(IMAGE), conv_net_result(), precision)
    check_bound_to_threads(conv_program)
    assert "cudnn" in with_a_cost(conv_program)


def test_threads_that_move_vectors_are_right(precision: str, tmp_path: Path) -> None:
    with CostDatabase(tmp_path / "costs.db") as database:
        program = uc.compile(
            IRModule({"main": MOBILE_NET}),
            target="cuda",
            backends=["tvm"],
            precision=precision,
            database=database,
        )
    image = np.random.default_rng(0).standard_normal((4, 16, 56, 56), dtype="float32")
    (expected,) = reference.run(MOBILE_NET, [image])
    close(program(image), expected, precision)
    check_bound_to_threads(program)


def test_a_layer_of_a_transformer_is_right(layer_program: uc.Program, layer: Any, precision: str) -> None:
    _, x, expected = layer
    close(layer_program(x), expected, precision)
    check_bound_to_threads(layer_program)
    assert "cublas" in with_a_cost(layer_program)


def with_a_cost(program: uc.Program) -> set[str]:
    """The backends that made a kernel or a rival of one. Which one wins depends on the device."""
    kernels = program.plan["main"].kernels
    return {each.backend for kernel in kernels for each in (kernel, *kernel.others) if each.seconds}


def test_libraries_compute_on_two_streams_at_once(
    conv_program: uc.Program, layer_program: uc.Program, layer: Any, precision: str
) -> None:
    """Each stream has memory of its own for what libraries need between their kernels."""

    def calls(program: uc.Program, given: np.ndarray, expected: np.ndarray) -> int:
        with own_stream():
            x = on_device(given)
            for _ in range(20):
                results = [program(x) for _ in range(10)]
                for result in results:
                    close(result, expected, precision)
        return len(results)

    works = [
        (conv_program, IMAGE, conv_net_result()),
        (layer_program, layer[1].numpy(), layer[2]),
        (conv_program, IMAGE, conv_net_result()),
    ]
    with ThreadPoolExecutor(len(works)) as pool:
        assert list(pool.map(lambda work: calls(*work), works)) == [10] * len(works)


# Kernels that misbehave


@pytest.fixture
def in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers can import the modules that stand next to this one."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)


def test_a_kernel_that_touches_foreign_memory_is_refused_and_harms_no_other(
    in_workers: None, tmp_path: Path
) -> None:
    names = [f"fake_{name}" for name in OFFSETS]
    with (
        fake_backend.installed(tmp_path / "site", *OFFSETS, values="device_backends:FAKES"),
        CostDatabase(tmp_path / "costs.sqlite") as database,
        CudaCost(database, method=QUICK) as model,
        cuda_target(),
    ):
        func = AnnotateCandidates((*names, "tvm"))(IRModule({"main": graphs.chain()}))["main"]
        found = model.costs(list(workloads(func, model).values()))
        kinds = {entry.kind for entry in database.quarantine_entries()}
    refused = {key.split(":")[0]: cost.reason for key, cost in found.items() if cost.seconds is None}
    assert set(refused) == {"fake_behind", "fake_nowhere"}, refused
    assert "it wrote outside of its tensors" in refused["fake_behind"]
    assert "the device can run nothing more" in refused["fake_nowhere"]
    assert kinds == {FailureKind.WROTE_OUTSIDE, FailureKind.RUN_ERROR}
    backends = {key.split(":")[0] for key, cost in found.items() if cost.seconds}
    assert backends == {"fake_right", "tvm"}
    ones = np.ones(3, "float32")  # this process has seen nothing of it
    np.testing.assert_array_equal(on_device(ones).numpy(), ones)
