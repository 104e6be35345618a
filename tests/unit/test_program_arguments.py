"""Which value goes to which input, and what a program makes of the values that it is called with."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm_ffi

from unity_collage.calling.inputs import taking, unchecked
from unity_collage.calling.names import InputNames, identifier
from unity_collage.calling.results import let_numpy_read_tensors
from unity_collage.calling.signature import OtherSpec, TensorSpec, TupleSpec
from unity_collage.calling.tensors import ALIGNMENT, tensor_of_array
from unity_collage.errors import CollageError

let_numpy_read_tensors()

X = np.arange(24, dtype="float32").reshape(4, 6)
LARGE = np.arange(4096, dtype="float32").reshape(64, 64)


def take(value: Any, dtype: str = "float32", shape: tuple | None = (4, 6), sizes: dict | None = None) -> Any:
    return taking(TensorSpec("x", dtype, shape))(value, {} if sizes is None else sizes)


def aligned(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """An array of ones whose memory begins at a multiple of the alignment."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    array = memory[start : start + nbytes].view(dtype).reshape(shape)
    array[...] = 1
    return array


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64", "uint8", "bool", "bfloat16"])
@pytest.mark.parametrize("size", [24, 24 * 1024])
def test_arrays_of_any_strides_become_aligned_tensors(dtype: str, size: int) -> None:
    source = np.arange(size).reshape(4, -1).astype(dtype)
    for values in (source[1:, ::2], np.asfortranarray(source), source[::-1], source[:0]):
        tensor = tensor_of_array(values)
        np.testing.assert_array_equal(np.asarray(tensor), values)
        assert tensor.data_ptr() % ALIGNMENT == 0 and tensor.is_contiguous()


def test_large_aligned_arrays_are_read_where_they_are() -> None:
    array = aligned((64, 64))
    assert tensor_of_array(array).data_ptr() == array.ctypes.data
    unaligned = aligned((64 * 64 + 1,))[1:].reshape(64, 64)
    assert tensor_of_array(unaligned).data_ptr() != unaligned.ctypes.data
    array.flags.writeable = False
    np.testing.assert_array_equal(np.asarray(tensor_of_array(array)), array)


def test_tensors_are_taken_as_they_are_and_copied_where_kernels_cannot_read_them() -> None:
    tensor = tvm.runtime.tensor(X)
    assert take(tensor) is tensor
    unaligned = tvm_ffi.from_dlpack(aligned((25,))[1:].reshape(4, 6))
    transposed = tvm_ffi.from_dlpack(aligned((6, 4)).T)
    for odd in (unaligned, transposed):
        taken = take(odd)
        assert taken.is_contiguous() and taken.data_ptr() % ALIGNMENT == 0
        np.testing.assert_array_equal(np.asarray(taken), np.ones((4, 6)))


class _Exchanged:
    """A tensor of a library of its own."""

    def __dlpack__(self, **options: Any) -> Any:
        return X.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return X.__dlpack_device__()


class _Convertible:
    """Something that numpy can read."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(X, dtype=dtype)


class _ReadOnly(_Convertible):
    """A tensor that can be read by numpy, and is not exchanged."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("read-only")

    def __dlpack_device__(self) -> tuple[int, int]:
        return X.__dlpack_device__()


class _Failing(_Convertible):
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise OSError("the file is gone")


@pytest.mark.parametrize(
    "value",
    [
        X,
        np.asfortranarray(X),
        X.astype(">f4"),
        X.view(type("Own", (np.ndarray,), {})),
        tvm.runtime.tensor(X),
        _Exchanged(),
        _Convertible(),
        _ReadOnly(),
    ],
    ids=["array", "Fortran", "big-endian", "subclass", "tensor", "dlpack", "array protocol", "both"],
)
def test_arrays_and_tensors_of_any_library_are_taken(value: Any) -> None:
    np.testing.assert_array_equal(np.asarray(take(value)), X)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([0, 1, 2], "int64"),
        ([0, 1, 255], "uint8"),
        ((-3, 4, 127), "int8"),
        ([True, False, True], "bool"),
        ([0.1, 0.2, 0.3], "float64"),
        ([np.float32(0.1)] * 3, "float32"),
    ],
)
def test_numbers_of_python_are_taken_where_they_are_exact(value: Any, dtype: str) -> None:
    taken = np.asarray(take(value, dtype, (3,)))
    assert taken.dtype == dtype
    np.testing.assert_array_equal(taken, np.array(value))


@pytest.mark.parametrize(
    ("value", "dtype", "shape", "reason"),
    [
        (X.astype("float64"), "float32", (4, 6), "float64 (4, 6) was given, and programs convert no types: convert it"),
        (X.astype("int64"), "float32", (4, 6), "int64 (4, 6) was given"),
        (X.astype("float16"), "float32", (4, 6), "float16 (4, 6) was given"),
        (tvm.runtime.tensor(X), "float64", (4, 6), "takes float64 (4, 6); float32 (4, 6) was given"),
        (X.tolist(), "float32", (4, 6), "float64 (4, 6) was given"),
        (1, "float32", (), "int64 () was given"),
        (0.5, "float32", (), "float64 () was given"),
        ([0, 256], "uint8", (2,), "numbers from 0 to 256 were given"),
        ([1.0, 2.0], "int64", (2,), "float64 (2,) was given"),
        (X[:3], "float32", (4, 6), "float32 (3, 6) was given: dimension 0 is 3, not 4"),
        (X.T, "float32", (4, 6), "dimension 0 is 6, not 4"),
        (X[0], "float32", (4, 6), "float32 (6,) was given: 1 dimensions, not 2"),
        (X, "float32", ("n", 7), "takes float32 (n, 7); float32 (4, 6) was given: dimension 1 is 6, not 7"),
        (None, "float32", (4, 6), "takes float32 (4, 6); None was given"),
        ("x", "float32", (), "a value of type str was given"),
        ({"x": X}, "float32", (4, 6), "a value of type dict was given"),
        ([[1, 2], [3]], "int64", (2, 2), "a value of type list was given that is not an array"),
        ([None], "float32", (1,), "a value of type list was given that numpy does not read as numbers"),
        (["a"], "float32", (1,), "a value of type list was given that numpy does not read as numbers"),
        (np.array(["a"]), "float32", (1,), "str32 (1,) was given"),
        (_Failing(), "float32", (4, 6), "that is not an array: the file is gone"),
        (np.ma.masked_equal(X, 3), "float32", (4, 6), "a masked array was given, whose mask would be lost"),
    ],
)  # fmt: skip
def test_nothing_is_converted_or_cut(value: Any, dtype: str, shape: tuple, reason: str) -> None:
    with pytest.raises(CollageError) as refused:
        take(value, dtype, shape)
    assert str(refused.value).startswith("input 'x' takes ") and reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_symbolic_dimensions_agree_between_inputs() -> None:
    sizes: dict[str, tuple[int, str]] = {}
    take(X, shape=("n", 6), sizes=sizes)
    take(X.T, shape=(6, "n"), sizes=sizes)
    other = taking(TensorSpec("y", "float32", ("n", "n")))
    with pytest.raises(CollageError, match=r"input 'y' .*: dimension 1 is 6, but n is 4 in 'x'"):
        other(X, sizes)
    take(X[:, :5], shape=("n", None), sizes=sizes)
    take(X[0], shape=None, sizes=sizes)


def test_tuples_are_checked_field_by_field_and_other_values_pass() -> None:
    fields = (TensorSpec("t[0]", "float32", ("n",)), TensorSpec("t[1]", "int64", ("n",)))
    pair = taking(TupleSpec("t", fields))
    first, second = pair((X[0], np.arange(6)), {})
    assert (str(first.dtype), str(second.dtype)) == ("float32", "int64")
    with pytest.raises(CollageError, match=r"input 't\[1\]' .*: dimension 0 is 5, but n is 6 in 't\[0\]'"):
        pair((X[0], np.arange(5)), {})
    with pytest.raises(CollageError, match="input 't' takes a tuple"):
        pair((X[0],), {})
    shape = tvm_ffi.Shape((1, 2))
    assert taking(OtherSpec("s", "R.Shape"))(shape, {}) is shape


def test_without_a_signature_arrays_become_tensors_and_tuples_stay_tuples() -> None:
    first, second = unchecked((np.ones(2, "float32"), np.zeros(1, "int32")))
    assert unchecked(first) is first
    assert str(second.dtype) == "int32"


def test_tensors_of_pytorch_are_read_where_they_are_and_keep_what_they_mean() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    assert take(tensor).data_ptr() == tensor.data_ptr()
    assert take(tensor.requires_grad_()).data_ptr() == tensor.data_ptr()
    tensor = tensor.detach()
    for same in (
        tensor.t().contiguous().t(),
        torch.stack([tensor, -tensor], -1)[..., 0],
        torch._neg_view(-tensor),
    ):
        np.testing.assert_array_equal(np.asarray(take(same)), X)
    assert (
        take(torch.ones(5, 0), shape=(5, 0)).strides == take(np.ones((5, 0), "float32"), shape=(5, 0)).strides
    )
    narrow = tensor.to(torch.bfloat16).t().contiguous().t()
    np.testing.assert_array_equal(np.asarray(take(narrow, "bfloat16")), X.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("kind", ["meta", "sparse", "complex", "float64"])
def test_tensors_of_pytorch_that_cannot_be_read_say_why(kind: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.ones(4, 6)
    value, reason = {
        "meta": (tensor.to("meta"), "a tensor on meta was given, and programs read the CPU's memory"),
        "sparse": (tensor.to_sparse(), "a tensor that is torch.sparse_coo was given"),
        "complex": (tensor.to(torch.complex64), "a value of type torch.Tensor was given"),
        "float64": (tensor.double(), "float64 (4, 6) was given"),
    }[kind]
    with pytest.raises(CollageError, match="input 'x' takes float32") as refused:
        take(value)
    assert reason in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "code",
    [
        "import unity_collage.runtime",
        "from unity_collage import load",
        "from unity_collage import CollageError",
        "from unity_collage import load\n"
        "from unity_collage.calling.inputs import taking\n"
        "from unity_collage.calling.signature import TensorSpec\n"
        "taking(TensorSpec('x', 'float32', (2,)))(np.ones(2, 'float32'), {})",
    ],
    ids=["runtime", "load", "errors", "arrays"],
)
def test_torch_is_not_imported_where_a_program_runs(code: str) -> None:
    after = "assert 'torch' not in sys.modules"
    if find_spec("torch") is not None and "taking" in code:
        after += "\nimport torch\nassert torch.ones(1).item() == 1"
    subprocess.run([sys.executable, "-c", f"import sys, numpy as np\n{code}\n{after}"], check=True)


LIGHT = """
import sys, unity_collage.ffi, tvm_ffi
late = {"importlib.metadata", "ml_dtypes", "tvm_ffi.cpp", "tvm_ffi.dataclasses", "typing_extensions"}
assert not late & set(sys.modules), late & set(sys.modules)

@tvm_ffi.dataclasses.py_class("collage.test.Node")
class Node(tvm_ffi.Object):
    x: int

    @tvm_ffi.method
    def label(self) -> str:
        return f"N({self.x})"

info = Node.__tvm_ffi_type_info__
assert next(each.func for each in info.methods if each.name == "label")(Node(x=7)) == "N(7)"
assert tvm_ffi.dataclasses is sys.modules["tvm_ffi.dataclasses"]
"""


def test_parts_of_the_ffi_that_programs_do_not_need_are_imported_when_they_are_used() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


NARROW = """
import sys, numpy as np
from unity_collage import load
from unity_collage.calling.inputs import taking
from unity_collage.calling.signature import TensorSpec
from unity_collage.calling.tensors import array_of_tensor, empty
assert array_of_tensor(empty((2,), "float32")).dtype == "float32" and "ml_dtypes" not in sys.modules
take = taking(TensorSpec("x", "bfloat16", (2,)))
tensor = take(np.array([1, 3], "bfloat16"), {})
assert array_of_tensor(tensor).astype("float32").tolist() == [1, 3]
"""


def test_numpy_gets_types_that_it_lacks_where_a_program_has_them() -> None:
    done = subprocess.run([sys.executable, "-c", NARROW], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_names_that_python_cannot_write_have_an_identifier() -> None:
    assert identifier("gpu_0/data:0") == "gpu_0_data_0"


@pytest.mark.parametrize(
    ("names", "named", "order"),
    [
        (("a.b", "a/b"), {"a/b": 2, "a.b": 1}, [1, 2]),
        (("a_b", "a:b"), {"a:b": 2, "a_b": 1}, [1, 2]),
        (("gpu_0/data:0", "ids"), {"ids": 2, "gpu_0_data_0": 1}, [1, 2]),
        (
            ("self", "out", "the input", "вход"),
            {"вход": 4, "out": 2, "the_input": 3, "self": 1},
            [1, 2, 3, 4],
        ),
    ],
)
def test_names_count_exactly_and_identifiers_where_they_name_one(
    names: tuple[str, ...], named: dict[str, int], order: list[int]
) -> None:
    assert list(InputNames(names).in_order((), named)) == order
    assert list(InputNames(names).in_order((named,), {})) == order
    assert list(InputNames(names).in_order(order, {})) == order
    first, *others = [(name, value) for name, value in zip(names, order, strict=True)]
    assert list(InputNames(names).in_order((first[1],), dict(others))) == order


@pytest.mark.parametrize(
    ("names", "args", "named", "reason"),
    [
        (("a", "b"), (), {}, "0 inputs given; the model takes 2: 'a', 'b'"),
        (("a",), (1, 2), {}, "2 inputs given; the model takes 1: 'a'"),
        (("a", "b"), (1,), {"c": 2}, "there is no input 'c'; the model takes 2: 'a', 'b'"),
        (("a", "b"), (1,), {"a": 2}, "input 'a' is given twice"),
        (("a/b", "c"), (), {"a/b": 1, "a_b": 2}, "input 'a/b' is given twice"),
        (("a", "b"), (), {"b": 2}, "input 'a' is missing; the model takes 2: 'a', 'b'"),
        (("a.b", "a/b"), (), {"a_b": 1, "a/b": 2}, "'a_b' may be any of 'a.b', 'a/b'"),
        (("a", "a"), (), {"a": 1}, "'a' may be any of 'a', 'a'"),
        (("a",), ({1: 1},), {}, "inputs are named by text, not by 1"),
        (tuple("abcdefghijk"), (), {}, "'h' and 3 more"),
        (("a" * 1000,), (), {"b": 1}, "1: 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"),
    ],
)  # fmt: skip
def test_wrong_names_are_told(
    names: tuple[str, ...], args: tuple[Any, ...], named: dict[str, int], reason: str
) -> None:
    with pytest.raises(CollageError) as refused:
        InputNames(names).in_order(args, named)
    assert reason in str(refused.value)
