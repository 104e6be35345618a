"""What becomes of the results of a program: numpy's view of them, memory of their own, buffers of the caller."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm

from unity_collage.calling.results import Buffers, let_numpy_read_tensors, with_own_memory
from unity_collage.calling.signature import Signature, TensorSpec
from unity_collage.errors import CollageError

let_numpy_read_tensors()

X = np.arange(6, dtype="float32").reshape(2, 3)
KNOWN = Signature((), (TensorSpec("y", "float32", ("n", 3)), TensorSpec("count", "int64", ())))


def results() -> list[Any]:
    return [tvm.runtime.tensor(X), tvm.runtime.tensor(np.array(7))]


def test_numpy_reads_tensors_without_a_copy() -> None:
    tensor = tvm.runtime.tensor(X)
    array = np.asarray(tensor)
    array[0, 0] = 5
    assert np.asarray(tensor)[0, 0] == 5 and array.dtype == "float32"
    assert np.array(tensor, dtype="float64").dtype == "float64"
    narrow = X.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.asarray(tvm.runtime.tensor(narrow)), narrow)


def test_shared_results_get_memory_of_their_own() -> None:
    first, second = results()
    got = with_own_memory([first, second], (0,))
    assert got[0].data_ptr() != first.data_ptr() and got[1].same_as(second)
    np.testing.assert_array_equal(got[0].numpy(), X)
    assert not with_own_memory(first, (0,)).same_as(first)


@pytest.mark.parametrize("signature", [KNOWN, None], ids=["known", "unknown"])
def test_results_are_written_into_arrays_of_any_strides(signature: Signature | None) -> None:
    wide, count = np.zeros((2, 6), "float32"), np.zeros((), "int64")
    out = (wide[:, ::2], count)
    assert Buffers(out, signature).filled(results()) is out
    np.testing.assert_array_equal(wide, np.repeat(X, 2, 1) * ([1, 0] * 3))
    assert count == 7
    given = [tvm.runtime.tensor(np.zeros((2, 3), "float32")), count]
    assert Buffers(given, signature).filled(results()) is given
    np.testing.assert_array_equal(given[0].numpy(), X)


def test_results_are_written_into_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    out = (torch.zeros(3, 2, requires_grad=True).t(), torch.zeros((), dtype=torch.int64))
    Buffers(out, KNOWN).filled(results())
    np.testing.assert_array_equal(out[0].detach().numpy(), X)


def _read_only() -> np.ndarray:
    array = np.zeros((2, 3), "float32")
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (np.zeros((2, 3)), "result 'y' is float32 (n, 3), but out has float64 (2, 3) for it"),
        (np.zeros((2, 4), "float32"), "result 'y' is float32 (n, 3), but out has float32 (2, 4) for it"),
        (np.zeros((3, 3), "float32"), "result 'y' is float32 (2, 3), but out has float32 (3, 3) for it"),
        (np.zeros(3, "float32"), "result 'y' is float32 (n, 3), but out has float32 (3,) for it"),
        (_read_only(), "result 'y' cannot be written to out: the array is read-only"),
        (np.zeros((2, 3), ">f4"), "the array is not in the machine's byte order"),
        (
            [[0.0] * 3] * 2,
            "a buffer is an array of numpy or a tensor of PyTorch or TVM, not a value of type list",
        ),
        (None, "not None"),
    ],
)
def test_a_wrong_buffer_is_told_and_no_other_is_written(first: Any, reason: str) -> None:
    count = np.zeros((), "int64")
    with pytest.raises(CollageError) as refused:
        Buffers((first, count), KNOWN).filled(results())
    assert reason in str(refused.value) and count == 0


def test_as_many_buffers_as_results_are_needed() -> None:
    with pytest.raises(CollageError, match="the program has 2 results, and out has arrays for 1"):
        Buffers(np.zeros((2, 3), "float32"), KNOWN)
    with pytest.raises(CollageError, match="the program has 2 results, and out has arrays for 1"):
        Buffers(np.zeros((2, 3), "float32"), None).filled(results())
