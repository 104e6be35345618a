"""Peers that cannot be timed say why, and only those with the right numbers are timed."""

from __future__ import annotations

import ctypes
import sys
from argparse import Namespace
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest
from torch_peer.runtime import torch_compile

from unity_collage.calling.signature import Signature, TensorSpec
from unity_collage.cli import bench as bench_command
from unity_collage.cli import compiling
from unity_collage.converting import cause, convert
from unity_collage.errors import ModelError
from unity_collage.plan.plan import Plan, PlannedKernel
from unity_collage.plan.ranges import PlanAtSample
from unity_collage.profile.peers import bench, ncnn, worker
from unity_collage.profile.peers.bench import PeerTimes, started
from unity_collage.profile.peers.mnn import mnn
from unity_collage.profile.peers.native import kept_output
from unity_collage.profile.peers.runtime_process import RuntimeMissing, RuntimeProcess
from unity_collage.profile.peers.runtimes import OURS
from unity_collage.profile.stored_inputs import store


def test_torch_compile_without_torch_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match="PyTorch is missing: pip install torch"):
        torch_compile(Path("no.onnx"), {}, 1)


@pytest.mark.parametrize(("name", "run"), [("MNN", mnn), ("ncnn", ncnn.ncnn)])
def test_a_peer_without_its_package_says_how_to_get_it(name, run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=f"{name} is missing: pip install {name}"):
        run(Path("no.onnx"), {}, 1)


def test_ncnn_without_its_converter_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ncnn", ModuleType("ncnn"))
    monkeypatch.setattr(ncnn, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pnnx is missing: pip install --no-deps pnnx"):
        ncnn.ncnn(Path("no.onnx"), {}, 1)


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (b"Start to Convert\n[21:41:22] :220: These Op Not Support: ONNX::Foo \nConverted Failed!\n",
         "These Op Not Support: ONNX::Foo"),
        (b"\x1b[1;31mort Run failed\x1b[m\n\n", "ort Run failed"),
        (b"\n", ""),
    ],
)  # fmt: skip
def test_the_cause_is_the_last_line_that_says_something(output: bytes, line: str) -> None:
    assert cause(output) == line


def test_a_converter_that_fails_or_writes_nothing_is_quoted(tmp_path: Path) -> None:
    run = partial(convert, folder=tmp_path, result=tmp_path / "model")
    with pytest.raises(ModelError, match=r"^not converted: no such layer$"):
        run(["sh", "-c", "echo no such layer >&2"])
    with pytest.raises(ModelError, match=r"^not converted: exit status 3$"):
        run(["sh", "-c", "echo > model; exit 3"])
    run(["sh", "-c", "echo > model"])


def test_output_of_native_code_is_kept_and_its_end_told(capfd: pytest.CaptureFixture[str]) -> None:
    with kept_output() as said:
        ctypes.CDLL(None).puts(b"layer Foo not exists")
        assert said() == "layer Foo not exists"
    ctypes.CDLL(None).puts(b"ours again")
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == "ours again\n"


class Given(RuntimeProcess):
    """A runtime without a process, whose only result is given."""

    def __init__(self, name: str, values: list[float]):
        self.name = name
        self.is_closed = False
        self._values = np.array(values, "float32")

    def outputs(self) -> list[np.ndarray]:
        return [self._values]

    def close(self) -> None:
        self.is_closed = True


def test_a_runtime_that_converts_is_timed_only_with_the_numbers_of_onnx_runtime(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench, "RuntimeProcess", lambda name, *_, **__: Given(name, [0, 4]))
    monkeypatch.setattr(bench, "CONVERTING", ("near", "wrong", "short"))
    others = [Given(name, values) for name, values in (("wrong", [0.1, 4]), ("short", [0]))]
    makers = {other.name: partial(lambda made: made, other) for other in others}
    makers |= {name: partial(Given, name, values) for name, values in (("own", [7]), ("near", [1e-4, 4]))}
    with ExitStack() as stack:
        running, missing = started(makers, Path("no.onnx"), {}, stack)
        assert list(running) == ["own", "near"]
        assert not any(process.is_closed for process in running.values())
    assert all(process.is_closed for process in [*others, *running.values()])
    assert missing == {
        "wrong": "wrong: output 0 is off by 2.5e-02 of its range (allowed 1e-03)",
        "short": "short: its results have [1] elements in place of [2]",
    }


def test_without_onnx_runtime_what_converts_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object, **__: object) -> RuntimeProcess:
        raise RuntimeMissing("onnxruntime: it is not installed")

    monkeypatch.setattr(bench, "RuntimeProcess", absent)
    with ExitStack() as stack:
        found = started({"mnn": absent}, Path("no.onnx"), {}, stack)
    assert found == ({}, {"mnn": "mnn: not checked: onnxruntime: it is not installed"})


def _options(against: list[str]) -> Namespace:
    given = {"against": against, "model": "no.onnx", "rounds": 1, "custom_op_library": ["libfoo.so"]}
    return Namespace(**given, target=None, rpc=None, json=False)


def test_bench_tells_who_was_not_timed_and_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = PeerTimes({OURS: [1.0]}, {"mnn": "mnn: ModelError: not converted: [1] x"})
    monkeypatch.setattr(compiling, "compiled", lambda options: Namespace(plan=None, signature=None))
    monkeypatch.setattr(compiling, "tell_accuracy", lambda *_: [])
    monkeypatch.setattr(bench, "timed_in_turns", lambda *_, **__: found)
    monkeypatch.setattr(bench_command, "why_no_peer", lambda *_: None)
    bench_command._bench(_options(against=["mnn"]))
    assert "not timed: mnn: ModelError: not converted: [1] x\n" in capsys.readouterr().out


def test_bench_runs_at_the_sizes_that_take_most_of_the_time_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = (PlanAtSample({"batch": 1}, 0.5, 1e-3), PlanAtSample({"batch": 8}, 0.5, 5e-3))
    signature = Signature((TensorSpec("x", "float32", ("batch", "rows", 4)),), ())
    kernel = PlannedKernel(0, "tvm", "relu", "fused_relu", ("y",), 1e-3)
    program = Namespace(plan={"main": Plan((kernel,), 1e-3, at_samples=samples)}, signature=signature)
    asked: list[Mapping[str, int]] = []

    def timed(*_: object, sizes: Mapping[str, int], libraries: list[str]) -> PeerTimes:
        assert libraries == ["libfoo.so"]
        asked.append(sizes)
        return PeerTimes({OURS: [1.0]}, {})

    monkeypatch.setattr(compiling, "compiled", lambda _: program)
    monkeypatch.setattr(compiling, "tell_accuracy", lambda *_: [])
    monkeypatch.setattr(bench, "timed_in_turns", timed)
    bench_command._bench(_options(against=[]))
    assert asked == [{"batch": 8, "rows": 1}]
    out = capsys.readouterr().out
    assert "all at batch 8, rows 1: --shape batch=SIZE chooses another size\n" in out
    assert "times as long as its kernels" not in out  # whose costs are weighed over both sizes


def test_a_runtime_gets_inputs_of_all_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = tmp_path / "typed_runner.py"
    runner.write_text("given = []\ndef run(path, inputs, threads):\n    given.append(inputs)\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    inputs = {"x": np.array([1.5, -2.0], ml_dtypes.bfloat16), "mask": np.array([[True, False]])}
    store(tmp_path / "inputs.npz", [list(inputs.values())])
    hello = {
        "inputs": str(tmp_path / "inputs.npz"),
        "names": list(inputs),
        "folders": [str(tmp_path)],
        "runner": "typed_runner:run",
        "path": "model.onnx",
        "threads": 1,
        "more": {},
    }
    worker._made(hello)
    (given,) = import_module("typed_runner").given
    assert list(given) == ["x", "mask"]
    assert all(
        given[name].dtype == value.dtype and (given[name] == value).all() for name, value in inputs.items()
    )
