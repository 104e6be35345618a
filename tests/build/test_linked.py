"""Programs of object code: kernels are compiled once, by what they compute, and linked where they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import unity_collage as uc
from unity_collage.lowering import function_objects
from unity_collage.lowering.build import build
from unity_collage.lowering.function_objects import FunctionObject, function_object, with_calls_renamed
from unity_collage.lowering.linked import LinkedExecutable, linked
from unity_collage.lowering.object_store import ObjectStore, using

TARGET = uc.host_target()
ONES = tvm.runtime.tensor(np.ones(8, "float32"))


def scaled(name: str, factor: float) -> Any:
    @T.prim_func(s_tir=True)
    def kernel(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")) -> None:
        T.func_attr({"global_symbol": name, "tirx.noalias": True})
        for i in range(8):
            with T.sblock("write"):
                vi = T.axis.spatial(8, i)
                b[vi] = a[vi] * T.float32(factor)

    return kernel


def made_of(func: Any, target: tvm.target.Target = TARGET) -> FunctionObject:
    made = function_object(func, target)
    assert made is not None
    return made


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that LLVM compiles."""
    names: list[str] = []
    original = function_objects._compiled

    def counted(functions: Any, target: Any) -> bytes:
        names.extend(gvar.name_hint for gvar in functions)
        return original(functions, target)

    monkeypatch.setattr(function_objects, "_compiled", counted)
    return names


@I.ir_module
class Twice:
    """Calls one kernel twice, and one that TVM makes of several functions."""

    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        with R.dataflow():
            first = R.exp(x)
            second = R.cumsum(first)
            third = R.exp(second)
            R.output(third)
        return third


def run(executable: relax.VMExecutable) -> np.ndarray:
    return relax.VirtualMachine(executable, tvm.cpu())["main"](ONES).numpy()


def test_equal_functions_are_one_object_whatever_their_names(compiled: list[str]) -> None:
    with using(ObjectStore()):
        first, second = (made_of(scaled(name, 2.0)) for name in ("one", "other"))
        different = made_of(scaled("one", 3.0))
    assert first == second
    assert different.symbol != first.symbol
    assert compiled == [first.symbol, different.symbol]


def test_another_target_is_another_object(compiled: list[str]) -> None:
    other = tvm.target.Target({**uc.target.fields_of(TARGET), "mcpu": "x86-64"})
    with using(ObjectStore()):
        objects = {made_of(scaled("one", 2.0), target).symbol for target in (TARGET, other)}
    assert len(objects) == 2


def test_other_options_of_passes_are_another_object() -> None:
    with using(ObjectStore()):
        first = made_of(scaled("one", 2.0))
        with tvm.transform.PassContext(config={"tirx.disable_vectorize": True}):
            second = made_of(scaled("one", 2.0))
    assert first.symbol != second.symbol


def test_an_object_runs(tmp_path: Path) -> None:
    with using(ObjectStore(tmp_path)):
        made_of(scaled("one", 2.0))
    with using(ObjectStore(tmp_path)):
        made = made_of(scaled("other", 2.0))
    out = tvm.runtime.empty((8,), "float32")
    linked([made.code]).get_function(made.symbol)(ONES, out)
    np.testing.assert_array_equal(out.numpy(), np.full(8, 2.0, "float32"))


def test_a_program_that_calls_a_kernel_twice_runs_and_is_not_compiled_again(compiled: list[str]) -> None:
    with using(ObjectStore()):
        executable = build(Twice, TARGET)
        count = len(compiled)
        again = build(Twice, TARGET)
    assert isinstance(executable, LinkedExecutable)
    assert len(compiled) == count
    expected = np.exp(np.cumsum(np.exp(np.ones(8, "float32"))))
    for made in (executable, again):
        np.testing.assert_allclose(run(made), expected, rtol=1e-5)


def test_a_program_is_written_after_it_has_run_and_runs_again(tmp_path: Path) -> None:
    executable = build(Twice, TARGET)
    before = run(executable)
    executable.export_library(str(tmp_path / "program.so"))
    written = relax.VirtualMachine(tvm.runtime.load_module(str(tmp_path / "program.so")), tvm.cpu())
    np.testing.assert_array_equal(written["main"](ONES).numpy(), before)
    np.testing.assert_array_equal(run(executable), before)


@pytest.fixture
def caller() -> Any:
    @T.prim_func(s_tir=True)
    def caller(a: T.handle) -> None:
        T.func_attr({"global_symbol": "caller"})
        T.evaluate(T.call_cpacked("kernel", a))
        T.evaluate(T.call_cpacked("library", a))

    return caller


def test_a_function_that_calls_others_is_no_object(caller: Any) -> None:
    assert function_object(caller, TARGET) is None


def test_calls_of_other_functions_get_their_symbols(caller: Any) -> None:
    text = with_calls_renamed(caller, {"kernel": "symbol"}).script()
    assert '"symbol"' in text and '"library"' in text and '"kernel"' not in text
