"""MNN as the program of a whole model: its numbers, what it needs, and which models it refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import tvm_ffi
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import unity_collage as uc
from unity_collage.errors import CollageError, ModelError
from unity_collage.feedback import Refinement
from unity_collage.feedback.whole_models import Entrant, entrants_of
from unity_collage.frontend.models import import_model
from unity_collage.runtime.mnn_sessions import MnnSession, MnnTensor
from unity_collage.runtime.vendors import VENDORS, Vendor
from unity_collage.sessions import RUNTIMES, SessionModel, session_module

NAME = "mnn, the whole model"
MNN = RUNTIMES["mnn"]
RNG = np.random.default_rng(0)
WEIGHTS = {
    "w": RNG.standard_normal((8, 16, 3, 3), dtype=np.float32) / 12,
    "b": RNG.standard_normal(8, dtype=np.float32),
}


@pytest.fixture
def installed() -> None:
    """Skips where MNN is not installed."""
    if reason := MNN.why_unavailable():
        pytest.skip(reason)


def model(
    *more: onnx.NodeProto,
    batch: int | str = 1,
    kind: int = TensorProto.FLOAT,
    result: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """Two images as inputs, the second of which is read first, and two results: a convolution and a negation."""
    value, shape = helper.make_tensor_value_info, (batch, 16, 9, 9)
    nodes = [
        helper.make_node("Sub", ["second", "first"], ["d"]),
        helper.make_node("Conv", ["d", "w", "b"], ["y"], pads=[1, 1, 1, 1]),
        *(more or [helper.make_node("Neg", ["first"], ["z"])]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [value("first", kind, shape), value("second", kind, shape)],
        [value("y", TensorProto.FLOAT, (batch, 8, 9, 9)), value("z", result, shape)],
        [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own.ops", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def images(seed: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((1, 16, 9, 9), dtype=np.float32) for _ in range(2)]


def right(given: list[np.ndarray]) -> list[np.ndarray]:
    return list(ReferenceEvaluator(model()).run(None, dict(zip(("first", "second"), given, strict=True))))


def agrees(program: uc.Program, given: list[np.ndarray]) -> None:
    for found, wanted in zip(program(*given), right(given), strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)


def entrant(given: onnx.ModelProto) -> Entrant:
    imported = import_model(given)
    return entrants_of(imported.whole, imported.mod, [MNN], "f32")[NAME]


def test_it_makes_the_program_where_it_is_named_and_the_file_runs_elsewhere(
    installed, tmp_path, monkeypatch
) -> None:
    program = uc.compile(model(), backends="mnn", database=tmp_path / "costs.sqlite")
    assert program.plan is not None
    assert [(each.backend, each.label) for each in program.plan["main"].kernels] == [
        ("mnn", "the whole model")
    ]
    for seed in (1, 2):  # a session uses the memory of its inputs again
        agrees(program, images(seed))
    before = uc.num_threads()
    try:
        uc.set_num_threads(1 if before > 1 else 2)
        agrees(program, images())
    finally:
        uc.set_num_threads(before)
    path = tmp_path / "program.so"
    program.save(path)
    np.savez(tmp_path / "values.npz", *images(), *right(images()))
    script = f"""
import sys, numpy as np, unity_collage as uc
stored = list(np.load({str(tmp_path / "values.npz")!r}).values())
program = uc.load({str(path)!r})
for found, wanted in zip(program(*stored[:2]), stored[2:], strict=True):
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)
print("onnx" in sys.modules, uc.runtime.why_pools_conflict())
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said == "False None\n"
    with pytest.raises(CollageError, match="a bundle runs without Python, and this program calls mnn"):
        program.save(tmp_path / "bundle", bundle=True)
    monkeypatch.setitem(VENDORS, "mnn", Vendor("mnn", "no-such-file.so", part="sessions", by_python=True))
    version = MNN.version().removeprefix("MNN ")
    with pytest.raises(CollageError, match=f"it needs mnn: .* is missing: pip install mnn=={version}$"):
        uc.load(path)


def test_it_takes_part_in_the_comparison(installed, tmp_path) -> None:
    quick = Refinement(rounds=3, round_seconds=0.002, stock=False)
    options = {"database": tmp_path / "costs.sqlite", "refine": quick}
    plan = uc.compile(model(), backends=["kernels", "tvm", "mnn"], **options).plan["main"]
    (theirs,) = [each for each in plan.comparison.programs if each.name == NAME]
    assert theirs.seconds and not theirs.reason


def test_threads_that_call_a_program_at_the_same_time_wait_for_each_other(installed, tmp_path) -> None:
    program = uc.compile(model(), backends="mnn", database=tmp_path / "costs.sqlite")
    agrees(program, images())
    before = uc.num_threads()
    try:
        uc.set_num_threads(1 if before > 1 else 2)  # the next calls open the model again
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda seed: agrees(program, images(seed)), range(40)))
    finally:
        uc.set_num_threads(before)


def test_a_forked_process_does_not_wait_for_threads_of_its_parent(installed) -> None:
    program, before = uc.compile(model(), backends="mnn", measure=False), uc.num_threads()
    uc.set_num_threads(2)
    try:
        agrees(program, images())
        if (child := os.fork()) == 0:
            signal.alarm(30)  # ends a child that waits
            try:
                agrees(program, images(2))
                agrees(uc.compile(model(), backends="mnn", measure=False, recompile=True), images(2))
                uc.set_num_threads(1)  # the next call closes the model, and opens it again
                agrees(program, images(3))
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        agrees(program, images())
    finally:
        uc.set_num_threads(before)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (model(batch="batch"), "the sizes of input 0 are open, and MNN takes models of fixed sizes"),
        (
            model(helper.make_node("Cast", ["first"], ["z"], to=TensorProto.INT64), result=TensorProto.INT64),
            "result 1 is int64, and MNN takes float32 and int32",
        ),
    ],
)
def test_a_model_that_it_does_not_take_is_refused_before_it_is_converted(given, reason) -> None:
    with pytest.raises(CollageError, match=reason):
        entrant(given).make()


def test_what_its_converter_lacks_is_the_reason(installed) -> None:
    foreign = model(helper.make_node("Foo", ["first"], ["z"], domain="own.ops"))
    with pytest.raises(ModelError, match=r"^not converted: .*Foo"):
        MNN.written(foreign.SerializeToString())


def test_integers_of_64_bits_inside_are_a_reason_too() -> None:
    wide = [
        helper.make_node("Cast", ["first"], ["i"], to=TensorProto.INT64),
        helper.make_node("Add", ["i", "i"], ["j"]),
        helper.make_node("Cast", ["j"], ["z"], to=TensorProto.FLOAT),
    ]
    imported = import_model(model(*wide))
    assert entrant(model(*wide)).why_less_exact(imported.mod) == "MNN computes int64 in int32"
    assert entrant(model()).why_less_exact(import_model(model()).mod) is None


def test_tensors_of_another_size_or_type_are_refused(installed) -> None:
    written = MNN.written(model().SerializeToString())
    session = SessionModel("small", written, ["first", "second"], ["y", "z"], MNN.settings_for("f32"))
    function = session_module("mnn", [session])["small"]
    results = [np.zeros((1, 8, 9, 9), np.float32), np.zeros((1, 16, 9, 9), np.float32)]
    for wrong in (np.zeros((1, 16, 9, 8), np.float32), np.zeros((1, 16, 9, 9), np.int32)):
        with pytest.raises(ValueError, match="small: MNN: second is float32 in the shape"):
            function(*map(tvm_ffi.from_dlpack, (images()[0], wrong, *results)))
    with pytest.raises(RuntimeError, match="sizes of results have to be known"):
        function(*map(tvm_ffi.from_dlpack, images()))


def test_what_is_not_a_model_is_refused(installed) -> None:
    session = SessionModel("broken", b"not a model", ["x"], ["y"], MNN.settings_for("f32"))
    with pytest.raises(RuntimeError, match=r"broken: MNN: .*createFromFile failed"):
        session_module("mnn", [session])["broken"]


def test_what_it_prints_is_not_on_standard_output(installed, capfd: pytest.CaptureFixture[str]) -> None:
    written = MNN.written(model().SerializeToString())
    session = SessionModel("small", written, ["first", "second"], ["y", "z"], MNN.settings_for("f32"))
    print("before", flush=True)
    assert session_module("mnn", [session])["small"] is not None
    print("after", flush=True)
    said = capfd.readouterr()
    assert (said.out, "MNN use high precision" in said.err) == ("before\nafter\n", True)


def test_a_result_without_memory_is_an_error_and_not_zeros(installed) -> None:
    import MNN as mnn

    values = np.zeros(3, np.float32)
    host = mnn.Tensor((3,), mnn.Halide_Type_Float, values, mnn.Tensor_DimensionType_Caffe)
    tensor = MnnTensor(mnn, host)  # MNN copies nothing to or from a tensor of the host
    with pytest.raises(RuntimeError, match="a result has no memory"):
        tensor.take(values.ctypes.data)
    with pytest.raises(RuntimeError, match="an input has no memory"):
        tensor.give()


def test_modes_of_memory_and_power_are_passed_as_numbers(monkeypatch) -> None:
    """MNN ignores their names."""
    given: list[dict[str, object]] = []

    class Interpreter:
        def __init__(self, _path: str) -> None:
            pass

        def createSession(self, config: dict[str, object]) -> None:
            given.append(config)

    monkeypatch.setitem(sys.modules, "MNN", SimpleNamespace(Interpreter=Interpreter))
    options = MNN.with_options({"memory": "low", "power": "high"}).settings_for("f32")
    with pytest.raises(RuntimeError, match="there is no session"):
        MnnSession("model.mnn", options, 2)
    assert given == [{"backend": "CPU", "numThread": 2, "memory": 2, "power": 1, "precision": "high"}]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"memory_mode": "low"}, "MNN has no option 'memory_mode'"),
        ({"memory": "little"}, "MNN has no memory 'little': the values are normal, high, low"),
    ],
)
def test_options_that_it_would_ignore_are_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(CollageError, match=reason):
        MNN.with_options(options)


def test_it_says_which_options_it_has(tmp_path: Path) -> None:
    with pytest.raises(
        CollageError, match=r"MNN has no option 'speed': .* begin with memory, power, precision"
    ):
        MNN.with_options({"speed": "high"})
