"""What a program makes of the arrays it is called with."""

from __future__ import annotations

import numpy as np
import pytest

from unity_collage.program import ALIGNMENT, argument, identifier


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64", "uint8", "bool"])
def test_arrays_are_copied_to_aligned_tensors(dtype: str) -> None:
    source = np.arange(24).reshape(4, 6).astype(dtype)
    values = source[1:, ::2]
    tensor = argument(values)
    expected = values.copy()
    source[...] = 0
    np.testing.assert_array_equal(tensor.numpy(), expected)
    assert np.from_dlpack(tensor).ctypes.data % ALIGNMENT == 0


@pytest.mark.parametrize("array", [np.float32(3.5), np.zeros((0, 3), "float32"), np.array(True)])
def test_scalars_and_empty_arrays_keep_their_shape(array: np.ndarray) -> None:
    tensor = argument(array)
    assert tuple(tensor.shape) == np.asarray(array).shape
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_tuples_stay_tuples_and_tensors_stay_themselves() -> None:
    first, second = argument((np.ones(2, "float32"), np.zeros(1, "int32")))
    assert argument(first) is first
    assert str(second.dtype) == "int32"


def test_names_that_python_cannot_write_have_an_identifier() -> None:
    assert identifier("gpu_0/data:0") == "gpu_0_data_0"
