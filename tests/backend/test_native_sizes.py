"""Native programs with free sizes: made for the sizes of a call, with one copy of the packed weights."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm_ffi
from c_memory import counted, in_use
from native_program import Program, channels_last, random, run, seen_as

from unity_collage import num_threads, runtime, set_num_threads

SIZE = {"terms": [[1, "n.0"]]}


@pytest.fixture(params=["onednn", "openblas"])
def backend(request: pytest.FixtureRequest) -> str:
    if reason := runtime.why_unavailable(request.param):
        pytest.skip(reason)
    return request.param


def product(backend: str, *, argument: int = 0, inner: int = 24, outer: int = 10) -> Program:
    """n x 24 times a constant 24 x 10, with one temporary."""
    program = Program()
    views: list[dict[str, Any]] = [
        program.input(1, inner), program.constant(random(inner, outer)), program.output(1, outer),
    ]  # fmt: skip
    for view in (views[0], views[2]):
        columns = view["dims"][1]
        view["dims"] = [SIZE, columns]
        buffer = program.text["buffers"][view["buffer"]]
        buffer |= {"nbytes": {"terms": [[4 * columns, "n.0"]]}, "shape": [SIZE, columns]}
    program.text["sizes"] = {"n.0": {"argument": argument, "axis": 0}}
    names = ("src", "weights", "dst") if backend == "onednn" else ("a", "b", "c")
    return program.step("matmul" if backend == "onednn" else "gemm", dict(zip(names, views, strict=True)))


def check(module: tvm_ffi.Module, rows: int) -> None:
    x = random(rows, 24, seed=rows)
    result = run(module, x, out=(rows, 10))
    np.testing.assert_allclose(result, x @ random(24, 10), rtol=1e-4, atol=1e-5)


def test_every_number_of_rows(backend: str) -> None:
    module = product(backend).create(backend)
    for rows in (3, 1, 7, 3, 100, 1, 2):
        check(module, rows)


def test_a_size_that_follows_from_an_extent(backend: str) -> None:
    """The result has 2 n + 1 rows, from which n follows: no n gives 4 rows."""
    program = product(backend)
    rows = {"terms": [[2, "n.0"], [1]]}
    for view in (*program.text["steps"][0]["args"].values(),):
        if view["dims"][0] == SIZE:
            view["dims"][0] = rows
    for number, columns in ((0, 24), (2, 10)):
        program.text["buffers"][number]["nbytes"] = {"terms": [[8 * columns, "n.0"], [4 * columns]]}
    program.text["sizes"] = {"n.0": {"argument": 1, "axis": 0, "factor": 2, "offset": 1}}
    module = program.create(backend)
    for count in (1, 7, 3):
        check(module, count)
    with pytest.raises(
        ValueError, match=r"argument 1 has the extent 4, which no value of the size n.0 gives"
    ):
        check(module, 4)


def test_no_rows(backend: str) -> None:
    module = product(backend).create(backend)
    assert run(module, random(0, 24), out=(0, 10)).shape == (0, 10)
    check(module, 2)


def test_more_sizes_than_are_kept(backend: str) -> None:
    module = product(backend).create(backend)
    for rows in (*range(1, 300), 1, 299):
        x = random(rows, 24)
        np.testing.assert_allclose(run(module, x, out=(rows, 10)), x @ random(24, 10), rtol=1e-4, atol=1e-5)
    kept = module.inspect_source("implementations").count("for sizes")
    assert kept == 256


def test_our_kernels_keep_more_sizes() -> None:
    if reason := runtime.why_unavailable("kernels"):
        pytest.skip(reason)
    module = convolution("grouped", random(16, 16, 3, 3), stride=1).create("kernels")
    images = random(1030, 4, 4, 16)
    for batch in range(1, 1031):
        run(module, images[:batch], out=(batch, 4, 4, 16))
    assert module.inspect_source("implementations").count("for sizes") == 1024


def test_a_saved_module_has_free_sizes(backend: str) -> None:
    module = tvm.ir.load_json(tvm.ir.save_json(product(backend).create(backend)))
    for rows in (1, 5):
        check(module, rows)


def test_a_result_of_another_size_is_refused(backend: str) -> None:
    module = product(backend).create(backend)
    with pytest.raises(ValueError, match="argument 1 has 160 bytes, not 120"):
        run(module, random(3, 24), out=(4, 10))


def test_several_threads_with_sizes_of_their_own(backend: str) -> None:
    module = product(backend).create(backend)
    failed: list[BaseException] = []

    def calls(first: int) -> None:
        try:
            for rows in range(first, first + 40):
                check(module, rows)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=calls, args=(first,)) for first in (1, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_size_that_no_argument_has_is_refused(backend: str) -> None:
    program = product(backend)
    program.text["buffers"][0]["nbytes"] = {"terms": [[4, "m"]]}
    with pytest.raises(ValueError, match="main: a size depends on a free size that no argument has"):
        program.create(backend)
    module = product(backend, argument=5).create(backend)
    with pytest.raises(ValueError, match="argument 5 is not a tensor with axis 0"):
        check(module, 3)


def test_sizes_share_their_packed_weights() -> None:
    """1,024 x 1,024 weights are 4 MiB: forty copies of them would be seen."""
    if reason := runtime.why_unavailable("onednn"):
        pytest.skip(reason)
    module = product("onednn", inner=1024, outer=1024).create("onednn")
    run(module, random(1, 1024), out=(1, 1024))
    run(module, random(64, 1024), out=(64, 1024))
    before = resident_mib()
    for rows in range(65, 105):
        run(module, random(rows, 1024), out=(rows, 1024))
    assert resident_mib() - before < 80


def convolution(step: str, weights: np.ndarray, **attrs: Any) -> Program:
    """3x3 filters, with as many results as channels, of n images of 4x4 pixels, channels last."""
    program, channels = Program(), len(weights)
    args = {"weights": program.constant(weights)}
    for name, argument in (("src", program.input), ("dst", program.output)):
        view = argument(1, 4, 4, channels)
        buffer = program.text["buffers"][view["buffer"]]
        buffer |= {"nbytes": {"terms": [[64 * channels, "n.0"]]}, "shape": [SIZE, 4, 4, channels]}
        dims = (1, channels, 4, 4)
        args[name] = seen_as(view, dims, channels_last(dims)) | {"dims": [SIZE, *dims[1:]]}
    program.text["sizes"] = {"n.0": {"argument": 0, "axis": 0}}
    return program.step(step, args, padding_l=[1, 1], **attrs)


@pytest.mark.parametrize(
    ("step", "dtype", "attrs"),
    [
        ("winograd", np.float32, {"tile": 4}),
        ("winograd", ml_dtypes.bfloat16, {"tile": 4}),
        ("grouped", np.float32, {"stride": 1}),
    ],
)
@counted
def test_convolutions_of_all_batches_and_threads_share_their_packed_weights(
    step: str, dtype: Any, attrs: dict[str, int]
) -> None:
    """Packed weights have 2 MiB or more: twenty copies of them would be seen."""
    if reason := runtime.why_unavailable("kernels"):
        pytest.skip(reason)
    module = convolution(step, random(256, 256, 3, 3).astype(dtype), **attrs).create("kernels")
    threads = num_threads()
    images = random(12, 4, 4, 256)

    def result(batch: int) -> np.ndarray:
        return run(module, images[:batch], out=(batch, 4, 4, 256))

    try:
        set_num_threads(2)
        expected = result(12)
        before = in_use()
        for count in (2, 1):
            set_num_threads(count)
            for batch in range(1, 12):
                np.testing.assert_allclose(result(batch), expected[:batch], atol=1e-3)
        assert in_use() - before < 2 << 20
    finally:
        set_num_threads(threads)


def resident_mib() -> float:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096 / (1 << 20)
