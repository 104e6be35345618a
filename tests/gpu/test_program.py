"""A program on the CUDA device: what it reads without a copy, where its results go, and its streams."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.calling.inputs import taking
from unity_collage.calling.signature import TensorSpec
from unity_collage.errors import CollageError
from unity_collage.runtime import cuda, streams

ROWS, INNER, COLUMNS = 64, 128, 32
_RANDOM = np.random.default_rng(0)
X = _RANDOM.uniform(-1, 1, (ROWS, INNER)).astype("float32")
W = _RANDOM.uniform(-1, 1, (INNER, COLUMNS)).astype("float32")


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((ROWS, INNER), "float32"), w: R.Tensor((INNER, COLUMNS), "float32")) -> R.Tensor(
        (ROWS, COLUMNS), "float32"
    ):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            R.output(z)
        return z


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> uc.Program:
    database = tmp_path_factory.mktemp("costs") / "costs.db"
    return uc.compile(Model, target="cuda", backends=["tvm"], database=database)


def right(x: np.ndarray = X, w: np.ndarray = W) -> np.ndarray:
    return np.maximum(x.astype("float64") @ w, 0)


def close(got: Any, x: np.ndarray = X) -> None:
    np.testing.assert_allclose(np.asarray(got), right(x), rtol=1e-4, atol=1e-4)


def on_device(array: np.ndarray) -> tvm.runtime.Tensor:
    return tvm.runtime.tensor(array, tvm.cuda(0))


@contextmanager
def own_stream() -> Iterator[int]:
    """A stream that the default stream does not wait for, as the current one of TVM in this thread."""
    device = tvm_ffi.device("cuda", 0)
    stream = int(tvm_ffi.get_global_func("runtime.Device_StreamCreate")(device))
    with streams.on_stream(stream):
        yield stream
    cuda.synchronize(stream)


@pytest.fixture
def torch() -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return found


def test_a_program_for_cuda_says_where_it_runs(program: uc.Program) -> None:
    assert (program.device, program.threads) == ("cuda", None)
    assert program(X, W).__dlpack_device__() == cuda.DEVICE


def test_arrays_of_numpy_go_in_and_results_are_read_by_numpy(program: uc.Program) -> None:
    result = program(X, W)
    close(result)
    close(result.numpy())
    close(program(np.asfortranarray(X), W))
    assert np.asarray(result).flags.owndata


def test_tensors_of_tvm_on_the_device_are_read_where_they_are(program: uc.Program) -> None:
    x, w = on_device(X), on_device(W)
    taken = program._arguments((x, w), {})
    assert [tensor.data_ptr() for tensor in taken] == [x.data_ptr(), w.data_ptr()]
    close(program(x, w))


def test_tensors_of_the_host_are_copied(program: uc.Program) -> None:
    close(program(tvm.runtime.tensor(X), W))


def test_tensors_of_pytorch_are_read_and_results_are_given_without_a_copy(
    program: uc.Program, torch: Any
) -> None:
    x, w = torch.from_numpy(X).cuda(), torch.from_numpy(W).cuda().requires_grad_()
    taken = program._arguments((x, w), {})
    assert [tensor.data_ptr() for tensor in taken] == [x.data_ptr(), w.data_ptr()]
    result = program(x, w)
    given = torch.from_dlpack(result)
    assert given.is_cuda and given.data_ptr() == result.data_ptr()
    torch.testing.assert_close(given, torch.relu(x @ w).detach(), rtol=1e-2, atol=1e-2)
    close(program(torch.from_numpy(X), w))


def test_tensors_of_pytorch_of_any_strides_and_alignment_are_copied_on_the_device(
    program: uc.Program, torch: Any
) -> None:
    w = torch.from_numpy(W).cuda()
    transposed = torch.from_numpy(X).cuda().t().contiguous().t()
    unaligned = torch.cat([torch.zeros(1), torch.from_numpy(X).flatten()]).cuda()[1:].view(ROWS, INNER)
    for x in (transposed, unaligned):
        assert program._arguments((x, w), {})[0].data_ptr() != x.data_ptr()
        close(program(x, w))


def test_results_go_to_buffers_on_the_device_and_on_the_host(program: uc.Program) -> None:
    array, tensor = np.full(right().shape, np.nan, "float32"), on_device(np.zeros(right().shape, "float32"))
    assert program(X, W, out=array) is array
    assert program(on_device(X), W, out=tensor) is tensor
    close(array)
    close(tensor)
    with pytest.raises(CollageError, match="the tensor is on cpu:0, and this program runs on cuda:0"):
        program(X, W, out=tvm.runtime.tensor(array))


def test_results_go_to_buffers_of_pytorch_on_its_stream(program: uc.Program, torch: Any) -> None:
    out = torch.empty(right().shape, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        assert program(torch.from_numpy(X).cuda(), W, out=out) is out
        torch.cuda.current_stream().synchronize()
    close(out.cpu())


def test_a_call_is_on_the_current_stream_of_pytorch(program: uc.Program, torch: Any) -> None:
    """The stream is busy when the input is written on it: another stream would read what was there before."""
    x, w = torch.zeros(ROWS, INNER, device="cuda"), torch.from_numpy(W).cuda()
    source = torch.from_numpy(X).cuda()
    program(x, w)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)
        x.copy_(source)
        result = program(x, w)
    close(result)


def _calls(program: uc.Program, seed: int) -> bool:
    with own_stream():
        w, rows = on_device(W), [X * (seed + i) for i in range(8)]
        inputs = [on_device(x) for x in rows]
        for _ in range(25):
            results = [program(x, w) for x in inputs]
            for x, result in zip(rows, results, strict=True):
                np.testing.assert_allclose(np.asarray(result), right(x), rtol=1e-4, atol=1e-2)
    return True


def test_two_threads_call_on_two_streams(program: uc.Program) -> None:
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda seed: _calls(program, seed), (1, 100))) == [True, True]


@pytest.mark.parametrize("place", [lambda array: array, on_device], ids=["host", "device"])
def test_ten_thousand_calls_take_no_more_memory_than_one(
    program: uc.Program, place: Callable[[np.ndarray], Any]
) -> None:
    x, w = place(X), place(W)
    close(program(x, w))
    cuda.synchronize_device()
    before = cuda.free_memory()
    for _ in range(10_000):
        result = program(x, w)
    close(result)
    assert cuda.free_memory() >= before - (2 << 20)


def test_a_benchmark_waits_for_the_device(program: uc.Program) -> None:
    assert program.prepared(X, W)() is None
    timing = program.benchmark(on_device(X), on_device(W), seconds=0.05)
    assert timing["runs"] >= 20 and 0 < timing["p5"] <= timing["median"] <= timing["p95"]


def test_a_program_cannot_be_captured(program: uc.Program, torch: Any) -> None:
    x, w = torch.from_numpy(X).cuda(), torch.from_numpy(W).cuda()
    close(program(x, w))
    with (
        pytest.raises(CollageError, match="cannot be captured in a CUDA graph"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        program(x, w)
    close(program(x, w))


def test_a_saved_program_runs_in_a_process_without_the_compiler(program: uc.Program, tmp_path: Path) -> None:
    program.save(tmp_path / "program.so")
    np.savez(tmp_path / "inputs.npz", x=X, w=W)
    close(uc.load(tmp_path / "program.so")(X, W))
    code = (
        "import sys, numpy as np\n"
        "from unity_collage import load\n"
        "program, given = load(sys.argv[1] + '/program.so'), np.load(sys.argv[1] + '/inputs.npz')\n"
        "result = program(given['x'], given['w'])\n"
        "assert 'tvm' not in sys.modules and program.device == 'cuda'\n"
        "np.save(sys.argv[1] + '/result.npy', result.numpy())\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    close(np.load(tmp_path / "result.npy"))


def test_a_tensor_on_the_device_is_refused_by_a_program_on_the_cpu() -> None:
    with pytest.raises(CollageError, match=r'cuda:0 was given, .* or compile the model with target="cuda"'):
        taking(TensorSpec("x", "float32", X.shape))(on_device(X), {})
