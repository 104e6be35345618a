"""The conformance kit for backends that make kernels for CUDA, without a device."""

from __future__ import annotations

import ctypes
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tvm.script import relax as R
from tvm.target import Target

from unity_collage import reference
from unity_collage.backends.base import Backend
from unity_collage.backends.registry import get
from unity_collage.measure.inputs import edge_inputs
from unity_collage.target import CUDA, host_target, target_of
from unity_collage.testing.conformance import CASES, CUDA_CASES, CheckState, case, examine, kernels, library
from unity_collage.testing.conformance import worker as worker_module
from unity_collage.testing.conformance.examine import _met
from unity_collage.testing.conformance.library import LibraryExamination
from unity_collage.testing.conformance.proposals import AskedCase, Proposals, Proposed
from unity_collage.testing.conformance.subject import Asked
from unity_collage.testing.conformance.verdicts import Notes
from unity_collage.testing.conformance.worker import ConformanceWorker
from unity_collage.testing.fake_backend import fake_backend

H100 = target_of("cuda -arch=sm_90")
SYSTEM_LIBRARY = "libBrokenLocale.so.1"

Answer = dict[str, Any]
Load = Callable[[str], None]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a library of a name that this process has not loaded."""
    maps = Path("/proc/self/maps")
    ctypes.CDLL(SYSTEM_LIBRARY)
    found = next(line.split()[-1] for line in maps.read_text().splitlines() if "libBrokenLocale" in line)

    def loaded(name: str) -> None:
        if not (tmp_path / name).exists():  # a mapped file must not change
            shutil.copy(found, tmp_path / name)
        ctypes.CDLL(str(tmp_path / name))
        assert name in maps.read_text()

    return loaded


def for_cuda(why_unavailable: Callable[[], str | None]) -> Backend:
    backend = fake_backend("on_device", "relax.nn.relu")
    return replace(backend, kinds=frozenset({CUDA}), why_unavailable=why_unavailable)


def met(
    monkeypatch: pytest.MonkeyPatch,
    backend: Backend,
    why_no_device: Callable[[], str | None],
    use_device: Callable[[], None] = lambda: None,
) -> tuple[Answer, ConformanceWorker]:
    """The reply of a worker about ``backend``, and the worker. ``use_device`` loads what kernels need."""

    def target() -> Target:
        use_device()
        return H100

    bench = SimpleNamespace(outputs_of=None, prepare=None)
    monkeypatch.setattr(worker_module, "resolve", lambda _: backend)
    monkeypatch.setattr(worker_module.cuda, "why_unavailable", why_no_device)
    monkeypatch.setattr(worker_module, "cuda_target", target)
    monkeypatch.setattr(worker_module, "CudaBench", lambda: bench)
    monkeypatch.setattr(worker_module.resource, "setrlimit", lambda *_: None)
    worker = ConformanceWorker(lambda _: None, ExitStack())
    return worker.meet("installed"), worker


# What is loaded


def test_the_driver_and_what_kernels_need_later_may_be_loaded(
    monkeypatch: pytest.MonkeyPatch, load: Load
) -> None:
    driver: Callable[[], None] = lambda: load("libdriver.so.1")  # noqa: E731
    answer, worker = met(monkeypatch, for_cuda(driver), driver, lambda: load("libkernels.so.1"))
    assert (answer["kind"], answer["unavailable"], answer["asked"]) == (CUDA, None, [])
    assert worker._place.target is H100


def test_the_library_of_the_backend_may_not_be_loaded(
    monkeypatch: pytest.MonkeyPatch, load: Load, tmp_path: Path
) -> None:
    answer, _ = met(monkeypatch, for_cuda(lambda: load("libproducts.so.1")), lambda: load("libdriver.so.1"))
    assert answer["asked"] == [str(tmp_path / "libproducts.so.1")]


def test_a_backend_for_the_cpu_may_not_load_the_driver(
    monkeypatch: pytest.MonkeyPatch, load: Load, tmp_path: Path
) -> None:
    asked: list[str] = []
    backend = replace(fake_backend("on_cpu"), why_unavailable=lambda: load("libdriver.so.1"))
    answer, worker = met(monkeypatch, backend, lambda: asked.append("asked"))
    assert answer["asked"] == [str(tmp_path / "libdriver.so.1")] and not asked
    assert answer["kind"] == "llvm" and str(worker._place.target) == str(host_target())


def test_rules_are_asked_about_a_device_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, worker = met(monkeypatch, for_cuda(lambda: "no driver"), lambda: "no driver")
    assert (answer["kind"], answer["unavailable"]) == (CUDA, "no driver")
    assert worker._place.target.kind.name == CUDA


# What a report says


def told(**answer: Any) -> tuple[Answer, Any]:
    """What :func:`_met` makes of a worker's reply, and the verdict on availability."""
    reply = {"imported": [], "value": None, "name": "on_device", "asked": [], "unavailable": None,
             "no_device": None, "kind": CUDA, "stays_in_ir": False, **answer}  # fmt: skip
    notes = Notes()
    subject: Any = SimpleNamespace(ask=lambda *_, **__: reply)
    found = _met(subject, "installed", notes)
    return found, next(verdict for verdict in notes.verdicts() if verdict.check == "availability")


@pytest.mark.parametrize(
    ("answer", "state", "line"),
    [
        ({}, CheckState.PASSED, "available; only the driver and the CUDA runtime were loaded to know"),
        ({"kind": "llvm"}, CheckState.PASSED, "available; nothing was loaded to know"),
        (
            {"unavailable": "no driver", "no_device": "no driver"},
            CheckState.PASSED,
            "not available, no driver; ",
        ),
        ({"asked": ["libproducts.so.1"]}, CheckState.FAILED, "why_unavailable() loads libproducts.so.1"),
        (
            {"no_device": "no driver"},
            CheckState.FAILED,
            "why_unavailable() answers None, and there is no CUDA device: no driver",
        ),
    ],
)
def test_availability_says_what_was_loaded(answer: Answer, state: CheckState, line: str) -> None:
    _, verdict = told(**answer)
    assert verdict.state is state and verdict.line.startswith(line)


def test_nothing_runs_where_there_is_no_device() -> None:
    assert told(no_device="no driver")[0]["unavailable"] == "there is no CUDA device: no driver"
    assert told()[0]["unavailable"] is None


# Kernels


class Process:
    """Stands for a worker process: answers by name of the question, and keeps what it was asked."""

    ended = 0

    def __init__(self, kernel: Callable[[Answer], Answer]):
        self.asked: list[tuple[str, Answer]] = []
        self._kernel = kernel

    def ask(self, ask: str, **arguments: Any) -> Answer:
        self.asked.append((ask, arguments))
        if ask == "fingerprint":
            return {"texts": ["1.0", "1.0"], "is_text": True}
        return self._kernel(arguments) if ask == "kernel" else {}

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None: ...


def made(surplus_threads: int = 0) -> Answer:
    return {"differs": None, "surplus_threads": surplus_threads, "conflict": None, "function": ""}


def examined(
    monkeypatch: pytest.MonkeyPatch, kind: str, kernel: Callable[[Answer], Answer], labels: str = "a"
) -> tuple[dict[str, Any], Process]:
    """The results by check for a kernel of each label, all of one computation, and the process that loads them."""
    fresh = Process(kernel)
    monkeypatch.setattr(library, "Subject", lambda *_: fresh)
    asked = AskedCase("relu", "")
    proposed = {label: Proposed(asked, n, label, (0,), 1, 0) for n, label in enumerate(labels)}
    notes, process = Notes(), Process(kernel)
    subject: Any = process
    LibraryExamination(subject, subject, notes, lambda _: None, 1.0, True, kind).run(Proposals(proposed))
    return {verdict.check: verdict for verdict in notes.verdicts()}, fresh


def test_threads_are_not_counted_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    results, _ = examined(monkeypatch, CUDA, lambda _: made(surplus_threads=3))
    assert results["threads"].state is CheckState.SKIPPED
    assert "NVIDIA's libraries start threads of their own" in results["threads"].line
    assert results["numbers"].state is CheckState.PASSED


def test_threads_are_counted_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    results, _ = examined(monkeypatch, "llvm", lambda _: made(surplus_threads=3))
    assert results["threads"].state is CheckState.FAILED
    assert results["threads"].line.startswith("a of [relu]: it started 3 threads of its own")
    assert examined(monkeypatch, "llvm", lambda _: made())[0]["threads"].state is CheckState.PASSED


@pytest.mark.parametrize("kind", [CUDA, "llvm"])
def test_the_process_that_loads_a_library_is_told_where_its_kernels_run(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, fresh = examined(monkeypatch, kind, lambda _: made())
    (question, arguments), = fresh.asked  # fmt: skip
    assert (question, arguments["kind"]) == ("load", kind)


def test_a_library_for_cuda_is_loaded_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    _, worker = met(monkeypatch, fake_backend("on_cpu"), lambda: None)
    targets: list[Target] = []
    monkeypatch.setattr(worker_module.kernels, "load", lambda funcs, target, path: targets.append(target))
    monkeypatch.setattr(worker_module.runtime, "why_unavailable", lambda _: "not here")
    worker.load([], "kernels.so", kind="llvm")
    worker.load([], "kernels.so", kind=CUDA)
    assert [target.kind.name for target in targets] == ["llvm", CUDA]


def not_here(*labels: str) -> Callable[[Answer], Answer]:
    numbers = {"abc".index(label) for label in labels}
    return lambda asked: {"not_here": "it has 1 engine"} if asked["number"] in numbers else made()


def test_a_library_may_have_fewer_algorithms_than_the_rule_has_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results, _ = examined(monkeypatch, CUDA, not_here("b", "c"), labels="abc")
    assert results["made"].state is CheckState.PASSED
    line = "3 kernels proposed, 1 made; the library has no implementation of 2 on this device"
    assert results["made"].line == line
    assert results["numbers"].line.startswith("1 kernel: ")


def test_a_library_has_some_algorithm_for_what_the_rule_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    results, _ = examined(monkeypatch, CUDA, not_here("a", "b", "c"), labels="abc")
    assert results["made"].findings == tuple(f"{label} of [relu]: it has 1 engine" for label in "abc")
    assert results["numbers"].state is CheckState.SKIPPED


@pytest.mark.parametrize(
    ("error", "raised"), [("there are 2 engines", kernels.NotHere), ("out of memory", kernels.Refused)]
)
def test_what_a_library_says_before_the_first_run(error: str, raised: type[Exception]) -> None:
    def prepare(_module: Any) -> None:
        raise RuntimeError(error)

    func = Asked(get("tvm"), case("relu", R.nn.relu, (3, 5)).make(), host_target()).kernel(0)
    place = kernels.KernelPlace(host_target(), prepare=prepare)
    with pytest.raises(raised):
        kernels.examined(func, get("tvm"), place, lambda _: None)
    assert kernels.examined(func, get("tvm"), replace(place, prepare=lambda _: None), lambda _: None) is None


# Cases


def test_cases_have_names_of_their_own() -> None:
    # A worker keeps the answers of a rule by the name of the case.
    counts = Counter(one.name for one in (*CASES, *CUDA_CASES))
    assert [name for name, count in counts.items() if count > 1] == []


def test_cases_for_cuda_are_of_16_bits_and_have_references() -> None:
    for one in CUDA_CASES:
        func = one.make()
        assert one.kind == CUDA and {str(param.ty.dtype) for param in func.params} == {"float16"}
        (found,) = reference.run(func, edge_inputs(func))
        assert str(found.dtype) == "float16" and np.isfinite(found).all(), one.name


@pytest.mark.parametrize(("name", "labels"), [
    ("cublas", {"cublas.algorithm0"}),
    ("cudnn", {"cudnn.engine0", "cudnn.attention0", "cudnn.pooling", "cudnn.layer_norm"}),
])  # fmt: skip
def test_our_backends_for_cuda_take_cases_of_16_bits(name: str, labels: set[str]) -> None:
    answers = (Asked(get(name), one.make(), H100).described() for one in CUDA_CASES)
    assert labels <= {proposal["label"] for answer in answers for proposal in answer["proposals"]}


def test_a_backend_is_examined_with_the_cases_of_its_kind() -> None:
    relu = case("relu", R.nn.relu, (3, 5))
    report = examine(
        "unity_collage.testing.fake_backend:FAKES.none", (relu, replace(relu, name="x", kind=CUDA))
    )
    assert "1 distinct kernel proposed for 1 function" in report["proposals"].line
