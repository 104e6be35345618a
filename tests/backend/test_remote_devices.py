"""Regions on other machines: a tracker and two servers on loopback, each of which computes a region."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from remote_machines import PATIENCE, end_all, served, tracked, without_rpc
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.errors import CollageError
from unity_collage.remote import RemoteDevice, RunRemotely

QUICK = {"measure": False, "backends": ["tvm"]}


@I.ir_module
class ThreeStages:
    """A product here, one on each of two other devices, with a tuple, booleans and two results."""

    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1), I.vdevice("llvm", 2)]})

    @R.function
    def main(x: R.Tensor((4, 8), "float32", "llvm:0"), w: R.Tensor((8, 8), "float32", "llvm:1")) -> R.Tuple(
        R.Tensor((4, 8), "float32", "llvm:0"), R.Tensor((4, 8), "bool", "llvm:0")
    ):
        with R.dataflow():
            a = R.exp(x)
            there = R.to_vdevice(a, "llvm:1")
            b = R.matmul(there, w)
            c = R.nn.relu(b)
            d = R.greater(b, R.const(3.0, "float32"))
            e = R.to_vdevice(c, "llvm:2")
            f = R.multiply(e, e)
            g = R.to_vdevice(f, "llvm:0")
            h = R.to_vdevice(d, "llvm:0")
            total = R.add(g, a)
            R.output(total, h)
        return (total, h)


X = np.random.default_rng(0).standard_normal((4, 8), "float32")
W = np.random.default_rng(1).standard_normal((8, 8), "float32")


def right() -> tuple[np.ndarray, np.ndarray]:
    product = np.exp(X) @ W
    return np.maximum(product, 0) ** 2 + np.exp(X), product > 3


def check(program: uc.Program) -> None:
    total, above = program(X, W)
    np.testing.assert_allclose(total.numpy(), right()[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(above.numpy(), right()[1])


@without_rpc
def test_regions_run_on_two_other_machines_and_a_lost_one_is_replaced(tmp_path: Path) -> None:
    with tracked() as tracker, served(tracker, ["one", "two"]) as machines:
        devices = {
            "llvm:1": RemoteDevice(tracker, "one", wait_seconds=PATIENCE),
            "cpu:2": RemoteDevice(tracker, "two", wait_seconds=PATIENCE),
        }
        mod = RunRemotely(devices, tmp_path / "costs.sqlite", QUICK)(ThreeStages)
        program = uc.compile(mod, measure=False)
        assert program.devices in ((), ("cpu:0",)) and program.plan is not None
        remarks = [line for line in program.plan["main"].remarks if " runs on " in line]
        assert len(remarks) == 2 and "'one' at the tracker" in remarks[0]
        assert "384 bytes there and 160 back take" in remarks[0]
        for _ in range(2):
            check(program)
        with pytest.raises(
            CollageError, match="a program with remote devices cannot be saved: it calls main_"
        ):
            program.save(tmp_path / "program.so")

        end_all(machines[1])
        with pytest.raises(CollageError, match=r"'two' at the tracker .* was lost while it computed main_"):
            program(X, W)
        with served(tracker, ["two"]):
            check(program)


@without_rpc
def test_costs_of_a_region_are_measured_on_its_server(tmp_path: Path) -> None:
    with tracked() as tracker, served(tracker, ["board"]):
        device = RemoteDevice(tracker, "board", wait_seconds=PATIENCE)
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((4, 8), "float32"))
        with builder.function("main", [x]):
            with builder.dataflow():
                there = builder.emit(relax.op.hint_on_device(x, tvm.cpu(1)))
                product = builder.emit(relax.op.matmul(there, relax.const(W)))
                out = builder.emit_output(relax.op.hint_on_device(product, tvm.cpu(0)))
            builder.emit_func_output(out)
        database = uc.CostDatabase(tmp_path / "costs.sqlite")
        program = uc.compile(RunRemotely({"cpu:1": device}, database)(builder.get()), database=database)
        assert len(database) > 0
        np.testing.assert_allclose(program(X).numpy(), X @ W, rtol=1e-4, atol=1e-5)
        device.close()
        np.testing.assert_allclose(program(X).numpy(), X @ W, rtol=1e-4, atol=1e-5)


@without_rpc
def test_two_regions_and_two_programs_share_the_only_server() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for _ in range(2):
                there = builder.emit(relax.op.hint_on_device(value, tvm.cpu(1)))
                product = builder.emit(relax.op.matmul(there, relax.const(W)))
                value = builder.emit(relax.op.tanh(relax.op.hint_on_device(product, tvm.cpu(0))))
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    with tracked() as tracker, served(tracker, ["board"]):
        device = RemoteDevice(tracker, "board", wait_seconds=PATIENCE)
        remote = RunRemotely({"cpu:1": device}, options=QUICK)
        right = np.tanh(np.tanh(X @ W) @ W)
        programs = [uc.compile(remote(builder.get()), measure=False) for _ in range(2)]
        for program in programs:
            np.testing.assert_allclose(program(X).numpy(), right, rtol=1e-4, atol=1e-5)


def free_sizes() -> IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((tvm.tirx.Var("n", "int64"), 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            there = builder.emit(relax.op.hint_on_device(x, tvm.cpu(1)))
            out = builder.emit_output(relax.op.exp(there))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize(
    ("model", "names", "reason"),
    [
        (ThreeStages, ["llvm:7"], "the module has no device 'llvm:7'"),
        (ThreeStages, ["cpu:3"], "the module has 0 VDevices for cpu:3"),
        (free_sizes(), ["cpu:1"], "a server computes fixed sizes"),
    ],
)
def test_what_no_server_computes_is_refused_before_one_is_asked(
    model: IRModule, names: list[str], reason: str
) -> None:
    device = RemoteDevice("127.0.0.1:9", "nobody", wait_seconds=0.1)
    with pytest.raises(CollageError, match=reason):
        RunRemotely(dict.fromkeys(names, device))(model)


def test_a_module_with_remote_devices_alone_is_refused() -> None:
    builder = relax.BlockBuilder()
    there = relax.VDevice(uc.host_target(), 1, "global")
    x = relax.Var("x", relax.TensorType((4, 8), "float32", there))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.exp(x))
        builder.emit_func_output(out)
    device = RemoteDevice("127.0.0.1:9", "nobody", wait_seconds=0.1)
    with pytest.raises(CollageError, match="all devices of the module are remote"):
        RunRemotely({"llvm:0": device})(builder.get())


def test_no_server_is_one_line() -> None:
    device = RemoteDevice("127.0.0.1:9", "nobody", wait_seconds=0.1)
    with pytest.raises(
        CollageError, match=r"no server for 'nobody' at the tracker 127\.0\.0\.1:9 within 0\.1 s"
    ):
        RunRemotely({"llvm:1": device, "llvm:2": device})(ThreeStages)
