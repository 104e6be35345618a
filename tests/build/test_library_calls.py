"""Calls of libraries inside TVM's kernels: what becomes one kernel, that it is right, scheduled, chosen and saved."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tvm
from schedule_checks import built
from tvm import relax, s_tir, te, tirx
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import unity_collage as uc
from unity_collage import runtime
from unity_collage.annotations import CANDIDATES, DECLINED, UNSCHEDULED
from unity_collage.backends import LibraryCall, register_library_call, unregister_library_call
from unity_collage.compiler import compile_with
from unity_collage.cost.fingerprint import made_by
from unity_collage.errors import CollageError
from unity_collage.lowering.build import build
from unity_collage.passes import AnnotateCandidates, FuseRemaining
from unity_collage.pipeline import collage
from unity_collage.runtime import libraries
from unity_collage.schedule.library_calls import has_calls
from unity_collage.testing.fixed_cost import FixedCost

without_openblas = pytest.mark.skipif(
    runtime.why_unavailable("openblas") is not None, reason=str(runtime.why_unavailable("openblas"))
)
RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((16, 8), dtype=np.float32)


@I.ir_module
class Labelled:
    """A kernel with a labelled function inside, as TVM's FuseOpsByPattern makes it."""

    @R.function(private=True)
    def same(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
        R.func_attr({"Composite": "libc.copy"})
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y

    @R.function(private=True)
    def kernel(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
        R.func_attr({"Primitive": 1})
        cls = Labelled
        with R.dataflow():
            before = R.multiply(x, R.const(2, "float32"))
            inside = cls.same(before)
            behind = R.exp(inside)
            R.output(behind)
        return behind

    @R.function
    def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
        cls = Labelled
        with R.dataflow():
            y = cls.kernel(x)
            R.output(y)
        return y


def _copy(to: tirx.Buffer, source: tirx.Buffer) -> tirx.Stmt:
    return tirx.Evaluate(tirx.call_extern("handle", "memcpy", to.data, source.data, tirx.const(256, "int64")))


@contextmanager
def registered(call: LibraryCall) -> Iterator[None]:
    register_library_call(call)
    try:
        yield
    finally:
        unregister_library_call(call.label)


COPY = LibraryCall("libc.copy", lambda ins, outs, _: _copy(outs[0], ins[0]))
BY_WAY = LibraryCall(
    "libc.copy",
    lambda ins, outs, space: tirx.SeqStmt([_copy(space, ins[0]), _copy(outs[0], space)]),
    workspace=lambda _func: 256,
)


@pytest.mark.parametrize("call", [COPY, BY_WAY], ids=["direct", "workspace"])
def test_a_labelled_function_becomes_a_call_of_a_symbol_inside_its_kernel(call: LibraryCall) -> None:
    with registered(call), uc.host_target() as target:
        final = FuseRemaining()(Labelled)
        executable = build(final, target)
    (kernel,) = (func for func in final.functions.values() if isinstance(func, tirx.PrimFunc))
    assert str(kernel.script()).count("T.vectorized") == 2, (
        "the loops before and behind the call are scheduled"
    )
    x = RNG.standard_normal((4, 16), dtype=np.float32)
    got = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(got, np.exp(2 * x), rtol=1e-6)


@T.prim_func(private=True, s_tir=True)
def _between(x: T.Buffer((100,), "float32"), y: T.Buffer((100,), "float32")):
    one = T.sblock_alloc_buffer((100,), "float32")
    two = T.sblock_alloc_buffer((100,), "float32")
    with T.sblock("first"):
        T.reads(x[0:100])
        T.writes(one[0:100])
        T.evaluate(T.call_extern("handle", "memcpy", one.data, x.data, T.int64(400)))
    for i in range(100):
        with T.sblock("two"):
            vi = T.axis.spatial(100, i)
            two[vi] = one[vi] * T.float32(2)
    with T.sblock("last"):
        T.reads(two[0:100])
        T.writes(y[0:100])
        T.evaluate(T.call_extern("handle", "memcpy", y.data, two.data, T.int64(400)))


def test_what_is_between_two_calls_is_computed_once() -> None:
    """TVM puts both temporaries in one place, so a second write would read what the first one has written."""
    x, y = RNG.standard_normal(100, dtype=np.float32), tvm.runtime.tensor(np.zeros(100, np.float32))
    built(_between)(tvm.runtime.tensor(x), y)
    np.testing.assert_array_equal(y.numpy(), 2 * x)


def test_a_label_without_a_call_is_refused() -> None:
    with (
        uc.host_target(),
        pytest.raises(CollageError, match=r"labelled 'libc.copy', and no library call is registered"),
    ):
        FuseRemaining()(Labelled)


def test_a_label_has_one_call() -> None:
    with registered(COPY), pytest.raises(CollageError, match=r"'libc.copy' has a library call already"):
        register_library_call(BY_WAY)


def product(rows: tuple[int, ...] = (2, 3), dtype: str = "float32") -> IRModule:
    """exp(tanh(x) @ WEIGHTS)."""
    x = relax.Var("x", relax.TensorType((*rows, 16), dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit(R.matmul(builder.emit(R.tanh(x)), relax.const(WEIGHTS, dtype)))
            result = builder.emit_output(R.exp(made))
        builder.emit_func_output(result)
    return builder.get()


CHEAP = FixedCost({"tvm_openblas": 1e-6, "tvm": 1e-3})


@without_openblas
@pytest.mark.parametrize("rows", [(2, 3), (6,), (1,)], ids=str)
def test_openblas_inside_of_loops_is_chosen_by_cost_and_saved(rows: tuple[int, ...], tmp_path: Path) -> None:
    program = compile_with(collage(["tvm", "tvm_openblas"], CHEAP), product(rows))
    (kernel,) = (program.plan or {})["main"].kernels
    assert (kernel.backend, kernel.label) == ("tvm_openblas", "tanh+matmul+exp")
    assert "collage.openblas.matmul" in program.mod.script()
    x = RNG.standard_normal((*rows, 16), dtype=np.float32)
    expected = np.exp(np.tanh(x) @ WEIGHTS)
    np.testing.assert_allclose(np.asarray(program(x)), expected, rtol=1e-5)
    path, given = tmp_path / "program.so", tmp_path / "x.npy"
    program.save(path)
    np.save(given, x)
    called = f"uc.load({str(path)!r})(np.load({str(given)!r})).numpy().ravel()"
    script = f"import numpy as np, unity_collage as uc; print(*{called})"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    np.testing.assert_allclose([float(each) for each in said.split()], expected.ravel(), rtol=1e-5)


@without_openblas
def test_the_plain_kernel_is_chosen_where_it_costs_less() -> None:
    costs = FixedCost({"tvm_openblas": 1e-3, "tvm": 1e-6})
    program = compile_with(collage(["tvm", "tvm_openblas"], costs), product())
    assert {kernel.backend for kernel in (program.plan or {})["main"].kernels} == {"tvm"}


def doubling(t: te.Tensor) -> te.Tensor:
    return te.compute(t.shape, lambda i, j: t[i, j] * 2.0)


@without_openblas
def test_a_kernel_may_have_prim_funcs_and_a_call() -> None:
    x = relax.Var("x", relax.TensorType((6, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit(R.matmul(x, relax.const(WEIGHTS)))
            doubled = builder.emit_te(doubling, made, primfunc_name_hint="doubling")
            result = builder.emit_output(R.exp(doubled))
        builder.emit_func_output(result)
    program = compile_with(collage(["tvm", "tvm_openblas"], CHEAP), builder.get())
    (kernel,) = (program.plan or {})["main"].kernels
    assert kernel.backend == "tvm_openblas"
    given = RNG.standard_normal((6, 16), dtype=np.float32)
    np.testing.assert_allclose(np.asarray(program(given)), np.exp(given @ WEIGHTS * 2), rtol=1e-4)


@without_openblas
def test_its_costs_are_for_the_version_of_our_library() -> None:
    assert f"library {libraries.version('openblas')}" in made_by("tvm_openblas")


@without_openblas
def test_products_without_elements_are_declined() -> None:
    with uc.host_target():
        mod = AnnotateCandidates(("tvm", "tvm_openblas"))(product((0,)))
    assert not [each for each in CANDIDATES.read(mod["main"]) if each.backend == "tvm_openblas"]


def test_loops_that_fit_no_family_are_told() -> None:
    with registered(COPY), uc.host_target():
        final = FuseRemaining()(Labelled)
    (kernel,) = (func for func in final.functions.values() if isinstance(func, tirx.PrimFunc))
    assert UNSCHEDULED not in kernel.attrs
    block = tirx.Evaluate(tirx.call_packed("theirs.only"))
    only = tirx.PrimFunc([], s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", block)))
    assert not has_calls(only)


@without_openblas
def test_other_products_are_declined() -> None:
    with uc.host_target():
        mod = AnnotateCandidates(("tvm", "tvm_openblas"))(product(dtype="float64"))
    assert not [each for each in CANDIDATES.read(mod["main"]) if each.backend == "tvm_openblas"]
    assert "it is a product of float64, not of float32" in {
        each.reason for each in DECLINED.read(mod["main"])
    }
