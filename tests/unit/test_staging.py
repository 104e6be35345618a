"""Staging: inputs and results are copied where this joins the kernels between them to one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.relax.backend.cuda import pipeline as cuda_pipeline
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm.target import Target

from unity_collage.lowering.build import finish, why_no_graph
from unity_collage.lowering.staging import staged

TARGET = Target({"kind": "cuda", "arch": "sm_90", "host": {"kind": "llvm"}})
SHAPE = (8, 8)

Kernel = Callable[..., relax.Var]
Body = Callable[[Kernel, Sequence[relax.Var]], relax.Expr]


def program(body: Body, inputs: int = 2) -> IRModule:
    """A module whose ``main`` calls libraries: ``kernel(*tensors)`` is one call."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(SHAPE, "float32")) for i in range(inputs)]

    def kernel(*tensors: relax.Expr) -> relax.Var:
        return builder.emit(relax.call_dps_packed("library", list(tensors), params[0].ty))

    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(kernel, params))
        builder.emit_func_output(result)
    return builder.get()


def finished(mod: IRModule) -> IRModule:
    lowered = tvm.transform.Sequential(cuda_pipeline.dataflow_lower_passes(TARGET))(mod)
    return finish(lowered, TARGET)(lowered)


def calls(mod: IRModule, function: str, callee: str) -> int:
    """How often a function calls another one, by its name in the script."""
    return mod[function].script().count(callee)


def test_an_input_of_two_kernels_is_copied_once():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8, 8), "float32"), y: R.Tensor((8, 8), "float32")) -> R.Tensor(
            (8, 8), "float32"
        ):
            with R.dataflow():
                a = R.call_dps_packed("f", (x, y), out_ty=R.Tensor((8, 8), "float32"))
                b = R.call_dps_packed("g", (a, x), out_ty=R.Tensor((8, 8), "float32"))
                gv = R.call_dps_packed("h", (b,), out_ty=R.Tensor((8, 8), "float32"))
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @T.prim_func(private=True, s_tir=True)
        def copy(
            source: T.Buffer((T.int64(8), T.int64(8)), "float32"),
            target: T.Buffer((T.int64(8), T.int64(8)), "float32"),
        ):
            T.func_attr({"tirx.noalias": True})
            for i, j in T.grid(T.int64(8), T.int64(8)):
                with T.sblock("copy"):
                    v, w = T.axis.remap("SS", [i, j])
                    target[v, w] = source[v, w]

        @R.function
        def main(x: R.Tensor((8, 8), "float32"), y: R.Tensor((8, 8), "float32")) -> R.Tensor(
            (8, 8), "float32"
        ):
            cls = Expected
            with R.dataflow():
                x_staged = R.call_tir(cls.copy, (x,), out_ty=R.Tensor((8, 8), "float32"))
                a = R.call_dps_packed("f", (x_staged, y), out_ty=R.Tensor((8, 8), "float32"))
                b = R.call_dps_packed("g", (a, x_staged), out_ty=R.Tensor((8, 8), "float32"))
                gv = R.call_dps_packed("h", (b,), out_ty=R.Tensor((8, 8), "float32"))
                R.output(x_staged, gv)
            return gv

    tvm.ir.assert_structural_equal(staged(Before), Expected)


def test_a_chain_with_two_inputs_becomes_one_graph():
    def body(kernel: Kernel, inputs: Sequence[relax.Var]) -> relax.Expr:
        x, y = inputs
        a = kernel(kernel(x, y), x)
        return kernel(kernel(kernel(a), y))

    before = program(body)
    assert why_no_graph(before) is None
    assert calls(finished(before), "main", "cuda_graph.run_or_capture") == 1
    assert calls(finished(before), "main_cuda_graph_capture", '"library"') == 1  # one of five
    after = finished(staged(before))
    assert calls(after, "main", "cuda_graph.run_or_capture") == 1
    assert calls(after, "main", '"library"') == 1  # the one that writes the result
    assert calls(after, "main_cuda_graph_capture", '"library"') == 4


def test_constants_and_views_are_inside_the_graph():
    def body(kernel: Kernel, inputs: Sequence[relax.Var]) -> relax.Expr:
        (x,) = inputs
        a = kernel(kernel(x), relax.const(1.0, "float32"))
        wide = relax.BlockBuilder.current().emit(relax.op.reshape(a, (4, 16)))
        return kernel(kernel(wide))

    after = finished(staged(program(body, inputs=1)))
    assert calls(after, "main", "cuda_graph.run_or_capture") == 1
    assert calls(after, "main_cuda_graph_capture", '"library"') == 2
    assert calls(after, "main_cuda_graph_capture", "vm.builtin.reshape") == 1


def test_an_input_behind_a_kernel_that_reads_none_is_copied():
    after = staged(program(lambda kernel, xs: kernel(kernel(kernel(kernel(xs[0])), xs[1]))))
    assert calls(after, "main", "x0_staged") == 0
    assert calls(after, "main", "x1_staged") > 0


def test_inputs_of_the_first_kernels_are_not_copied():
    before = program(lambda kernel, xs: kernel(kernel(kernel(kernel(xs[0]), xs[1]))))
    tvm.ir.assert_structural_equal(staged(before), before)


def test_an_input_that_is_changed_in_place_is_not_copied():
    def body(kernel: Kernel, inputs: Sequence[relax.Var]) -> relax.Expr:
        x, y = inputs
        view = relax.op.reshape(x, SHAPE)
        call = relax.op.call_inplace_packed("change", view, y, inplace_indices=[0], ty_args=x.ty)
        changed = relax.BlockBuilder.current().emit(call)
        return kernel(kernel(changed, y), x)

    after = staged(program(body))
    assert calls(after, "main", "x0_staged") == 0
    assert calls(after, "main", "x1_staged") > 0


def test_a_view_of_an_input_counts_as_the_input():
    def body(kernel: Kernel, inputs: Sequence[relax.Var]) -> relax.Expr:
        (x,) = inputs
        wide = relax.BlockBuilder.current().emit(relax.op.reshape(x, (4, 16)))
        return kernel(kernel(kernel(x), wide))

    assert calls(staged(program(body, inputs=1)), "main", "R.reshape(x0_staged") == 1


def test_weights_behind_the_inputs_stay_where_they_are():
    def body(kernel: Kernel, inputs: Sequence[relax.Var]) -> relax.Expr:
        x, weight = inputs
        return kernel(kernel(kernel(x, weight), weight))

    before = program(body)
    before = IRModule({"main": before["main"].with_attr("num_input", 1)})
    tvm.ir.assert_structural_equal(staged(before), before)


def test_a_result_of_an_early_kernel_is_copied_at_the_end():
    def body(kernel: Kernel, inputs: Sequence[relax.Var]) -> relax.Expr:
        early = kernel(kernel(inputs[0]))
        return relax.Tuple([early, kernel(kernel(early)), early])

    before = program(body, inputs=1)
    assert calls(finished(before), "main", "cuda_graph.run_or_capture") == 0
    after = finished(staged(before))
    assert calls(after, "main", "cuda_graph.run_or_capture") == 1
    assert calls(after, "main_cuda_graph_capture", '"library"') == 2
    assert calls(after, "main", "copy(") == 1


def test_an_input_that_is_returned_is_not_copied():
    before = program(lambda kernel, xs: relax.Tuple([xs[0], kernel(xs[0])]), inputs=1)
    tvm.ir.assert_structural_equal(staged(before), before)


def test_copies_have_names_of_their_own():
    before = program(lambda kernel, xs: kernel(kernel(xs[0]), xs[0]), inputs=1)
    taken = IRModule({"main": before["main"], "copy": before["main"].with_attr("global_symbol", "copy")})
    assert sorted(gvar.name_hint for gvar in staged(taken).functions) == ["copy", "copy_0", "main"]


@pytest.mark.parametrize("reason", ["it has branches", "it has symbolic shapes"])
def test_why_there_is_no_graph(reason: str):
    @I.ir_module
    class Branches:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            if c:
                r = R.call_dps_packed("f", (x,), out_ty=R.Tensor((8,), "float32"))
            else:
                r = x
            return r

    @I.ir_module
    class Symbolic:
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            return R.call_dps_packed("f", (x,), out_ty=R.Tensor((n,), "float32"))

    mod = Branches if reason == "it has branches" else Symbolic
    assert why_no_graph(mod) == reason
    assert calls(finished(mod), "main", "cuda_graph") == 0
