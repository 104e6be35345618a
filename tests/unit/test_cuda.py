"""CUDA without a device: what is reported missing, in which order streams run, and what a program refuses."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm.target import Target

from unity_collage.calling import device_memory, memory
from unity_collage.calling.device_memory import DeviceMemory
from unity_collage.calling.processor import instruction_sets
from unity_collage.calling.results import Buffers
from unity_collage.calling.tensors import nbytes_of
from unity_collage.errors import CollageError
from unity_collage.program import Program, facts
from unity_collage.runtime import cuda, libraries, streams
from unity_collage.runtime.vendors import VENDORS, Vendor, part_of
from unity_collage.target import host_of, processor_of

HOST = Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "znver4"})
H100 = Target(Target({"kind": "cuda", "arch": "sm_90"}), host=HOST)


def devices(number: int) -> Callable[[], int]:
    return lambda: number


def no_devices() -> int:
    raise RuntimeError("cudaGetDeviceCount failed: cudaErrorNoDevice: no CUDA-capable device is detected")


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> pytest.MonkeyPatch:
    """Everything that CUDA needs is there, in name."""
    monkeypatch.setattr(cuda, "_loads", lambda _: True)
    monkeypatch.setattr(cuda, "count", devices(1))
    monkeypatch.setattr(cuda, "_tvm_runtime", lambda: tmp_path)
    monkeypatch.setattr(cuda, "own_library", lambda _: tmp_path)
    return monkeypatch


def test_nothing_is_missing_where_everything_is_there(complete: pytest.MonkeyPatch) -> None:
    assert cuda.why_unavailable() is None
    assert libraries.why_unavailable("cublas") is None


@pytest.mark.parametrize(
    ("what", "value", "reason"),
    [
        ("_loads", lambda name: name != "libcuda.so.1", "libcuda.so.1 is missing: install NVIDIA's driver"),
        ("_RUNTIME", Vendor("no-such-wheel", "lib/libcudart.so.13"), "libcudart.so.13 is missing: pip install "),
        ("count", no_devices, "no CUDA-capable device is detected: see nvidia-smi"),
        ("count", devices(0), "CUDA finds no device: see nvidia-smi and CUDA_VISIBLE_DEVICES"),
        ("_tvm_runtime", lambda: None, "libtvm_runtime_cuda.so is missing: pip install apache-tvm"),
        ("own_library", lambda _: None, "libcollage_cuda.so is missing: the package was installed without"),
    ],
    ids=["driver", "runtime", "no device", "zero devices", "TVM", "our library"],
)  # fmt: skip
def test_what_is_missing_is_told_in_one_line(
    complete: pytest.MonkeyPatch, what: str, value: Any, reason: str
) -> None:
    if what == "_RUNTIME":
        complete.setattr(cuda, "_loads", lambda name: "cudart" not in name)
    complete.setattr(cuda, what, value)
    told = cuda.why_unavailable()
    assert told is not None and reason in told and "\n" not in told
    assert libraries.why_unavailable("cudnn") == told
    with pytest.raises(RuntimeError, match="cannot load cuda: "):
        cuda.load.__wrapped__()


def test_a_library_of_a_backend_is_missing_alone(complete: pytest.MonkeyPatch) -> None:
    complete.setattr(cuda, "_loads", lambda name: "cublas" not in name)
    complete.setitem(VENDORS, "cublas", Vendor("no-such-wheel", "lib/libcublasLt.so.13", part="cuda"))
    assert (
        libraries.why_unavailable("cublas")
        == "libcublasLt.so.13 is missing: pip install 'unity_collage[cuda]'"
    )
    assert libraries.why_unavailable("cudnn") is None


def test_backends_for_cuda_share_a_library() -> None:
    assert {name: part_of(name) for name in ("cublas", "cudnn", "onednn", "runtime")} == {
        "cublas": "cuda", "cudnn": "cuda", "onednn": "onednn", "runtime": "runtime"
    }  # fmt: skip


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The pairs of streams of which the first was told to wait for the second."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(cuda, "count", devices(1))
    monkeypatch.setattr(cuda, "let_wait", lambda *pair: found.append(pair))
    monkeypatch.setattr(cuda, "is_captured", lambda stream: stream == 13)
    monkeypatch.setattr(streams._Last, "stream", 0)
    return found


def test_a_call_waits_for_the_stream_of_the_call_before(waits: list[tuple[int, int]]) -> None:
    call = streams.in_order(lambda value: (value, streams.current_stream()))
    for stream in (0, 7, 7, 9, 7):
        with streams.on_stream(stream):
            assert call("x") == ("x", stream)
    assert waits == [(7, 0), (9, 7), (7, 9)]


def test_a_call_waits_for_the_device_where_the_stream_before_is_destroyed(
    waits: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def destroyed(*_: int) -> None:
        raise RuntimeError("cudaEventRecord failed: cudaErrorInvalidResourceHandle")

    monkeypatch.setattr(cuda, "let_wait", destroyed)
    monkeypatch.setattr(cuda, "synchronize_device", lambda: waits.append((0, 0)))
    call = streams.in_order(lambda: None)
    for _ in range(2):
        with streams.on_stream(7):
            call()
    assert waits == [(0, 0)]


def test_a_captured_stream_and_another_device_are_refused(
    waits: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def call() -> None:
        raise AssertionError("it was called")

    with streams.on_stream(13), pytest.raises(RuntimeError, match="cannot be captured in a CUDA graph"):
        streams.in_order(call)()
    monkeypatch.setattr(cuda, "count", devices(2))
    monkeypatch.setattr(cuda, "current_device", devices(1))
    with pytest.raises(RuntimeError, match=r"this thread uses CUDA device 1, .* torch\.cuda\.device\(0\)"):
        streams.in_order(call)()
    assert waits == []


def test_a_function_for_timing_waits_for_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setattr(cuda, "synchronize", done.append)
    with streams.on_stream(7):
        run = streams.waiting(lambda *given: done.append((given, streams.current_stream())), (1, 2))
    assert run() is None
    assert done == [((1, 2), 7), 7]


class _Tensor:
    """What a call asks a tensor of PyTorch about its device."""

    def __init__(self, device: str):
        self.device, self.is_cuda, self.is_cpu = device, device.startswith("cuda"), device == "cpu"
        self.dtype, self.shape = "torch.float32", (2, 3)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PyTorch whose current stream is 7."""
    stream = SimpleNamespace(cuda_stream=7)
    found = SimpleNamespace(Tensor=_Tensor, cuda=SimpleNamespace(current_stream=lambda _: stream))
    monkeypatch.setitem(device_memory.sys.modules, "torch", found)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "stream"),
    [
        (((_Tensor("cpu"), np.zeros(1)), {}), 0),
        (((_Tensor("cuda:0"),), {}), 7),
        (((), {"x": (np.zeros(1), _Tensor("cuda:0"))}), 7),
        ((({"x": _Tensor("cuda:0")},), {}), 7),
        (((), {}, _Tensor("cuda:0")), 7),
    ],
    ids=["none", "by position", "in a tuple", "in one dict", "a buffer"],
)
def test_a_call_is_on_the_stream_of_pytorch_if_it_gives_a_tensor_on_the_device(
    torch: None, values: tuple[Any, ...], stream: int
) -> None:
    with DeviceMemory().stream_of(*values):
        assert streams.current_stream() == stream
    assert streams.current_stream() == 0


@pytest.mark.parametrize(
    ("place", "device", "reason"),
    [
        (memory.HOST, "cuda:0", "the tensor is on cuda:0, and this program runs on the CPU: give one on the CPU"),
        (DeviceMemory(), "cpu", "the tensor is on cpu, and this program runs on cuda:0: give a tensor on it, or an"),
        (DeviceMemory(), "cuda:1", "the tensor is on cuda:1, and this program runs on cuda:0"),
    ],
)  # fmt: skip
def test_a_buffer_in_the_wrong_memory_is_refused(
    torch: None, place: memory.Memory, device: str, reason: str
) -> None:
    with pytest.raises(CollageError, match="result 0 cannot be written to out: ") as refused:
        Buffers(_Tensor(device), None, place)
    assert reason in str(refused.value)


def test_a_tensor_on_another_device_is_refused(torch: None) -> None:
    with pytest.raises(CollageError, match="a tensor on meta was given, and this program runs on cuda:0"):
        DeviceMemory().exchanged(_Tensor("meta"))


def test_a_program_for_cuda_is_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "why_unavailable", lambda: "libcuda.so.1 is missing: install it")
    program = Program(None, ["x"], target=H100)
    assert (program.device, program.threads) == ("cuda", None)
    with pytest.raises(
        CollageError, match=r"^the program cannot run here: libcuda\.so\.1 is missing: install it$"
    ):
        program(np.zeros(1))  # fmt: skip
    assert Program(None, ["x"], target=HOST).device == "cpu"


def test_the_processor_of_a_program_for_cuda_is_that_of_the_host() -> None:
    assert host_of(H100).kind.name == "llvm" and host_of(HOST) is HOST
    assert instruction_sets(H100) == instruction_sets(HOST) != []
    assert processor_of(H100) == processor_of(HOST) == "x86_64"


NEEDED = facts.DeviceFacts(kind="cuda", capability="9.0", name="NVIDIA H100", backends=["cublas"])


@pytest.mark.parametrize(
    ("missing", "capability", "reason"),
    [
        (None, "9.0", None),
        ("no driver: install it", "9.0", "it runs on a CUDA device: no driver: install it"),
        (
            None,
            "8.0",
            "it was compiled for compute capability 9.0 (NVIDIA H100), and A100 has 8.0: compile the model again",
        ),
    ],
)
def test_a_saved_program_names_the_device_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, missing: str | None, capability: str, reason: str | None
) -> None:
    monkeypatch.setattr(cuda, "why_unavailable", lambda: missing)
    monkeypatch.setattr(cuda, "capability", lambda: capability)
    monkeypatch.setattr(cuda, "name", lambda: "A100")
    assert facts.why_not_on_this_device(NEEDED) == reason
    assert facts.why_not_on_this_device(None) is None


def test_the_facts_of_a_program_name_its_device_and_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "why_unavailable", lambda: "no driver")
    monkeypatch.setattr(facts, "runtimes_in", lambda _: ["cublas", "cudnn"])
    monkeypatch.setattr(libraries, "version", lambda _: "1")
    written = facts.facts_about(None, target=H100, device="cuda")
    assert written["libraries"] == {"runtime": 1, "cuda": 1}
    assert written["device"] == {**NEEDED, "name": "", "backends": ["cublas", "cudnn"]}
    assert facts.backends_in(written) == ["cublas", "cudnn"] and facts.device_in(written) == "cuda"


def test_facts_of_older_programs_have_no_device() -> None:
    older: Any = {"libraries": {"runtime": 1, "onednn": 2}}
    assert facts.backends_in(older) == ["onednn"] and facts.device_in(older) == "cpu"


@pytest.mark.parametrize(("arch", "capability"), [("sm_90", "9.0"), ("sm_90a", "9.0"), ("sm_120", "12.0")])
def test_an_architecture_has_a_compute_capability(arch: str, capability: str) -> None:
    assert facts._capability_of(arch) == capability


def test_the_bytes_of_a_tensor_count_packed_elements() -> None:
    tensor = SimpleNamespace(numel=lambda: 7, dtype=tvm_ffi.dtype("int4"))
    assert nbytes_of(tensor) == 4  # type: ignore[arg-type]
    assert nbytes_of(tvm_ffi.from_dlpack(np.zeros((2, 3), "float64"))) == 48
