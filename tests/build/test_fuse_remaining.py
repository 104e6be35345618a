"""FuseRemaining: one kernel for each group that was made before, TVM's own fusion for the rest."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc
from unity_collage import reference
from unity_collage.annotations import PLAN, THREADS, UNSCHEDULED
from unity_collage.passes import AnnotateCandidates, EstimateCosts, FuseRemaining, SearchPartition
from unity_collage.schedule.stage import nodes
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import only_backends
from unity_collage.testing.faults import Faults
from unity_collage.testing.fixed_cost import FixedCost


@I.ir_module
class Grouped:
    @R.function(private=True)
    def mine(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
        R.func_attr({"Primitive": 1})
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(a)
            R.output(b)
        return b

    @R.function
    def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((64,), "float32"):
        cls = Grouped
        with R.dataflow():
            a: R.Tensor((4, 16), "float32") = cls.mine(x)
            b = R.reshape(a, (64,))
            c = R.tanh(b)
            d = R.abs(c)
            R.output(d)
        return d


def lowered(mod: IRModule) -> IRModule:
    with uc.host_target():
        return FuseRemaining()(mod)


def run(mod: IRModule, *inputs: np.ndarray) -> np.ndarray:
    with uc.host_target() as target:
        machine = relax.VirtualMachine(relax.build(mod, target), tvm.cpu())
    return machine["main"](*(tvm.runtime.tensor(value) for value in inputs)).numpy()


def prim_funcs(mod: IRModule) -> dict[str, tirx.PrimFunc]:
    return {g.name_hint: f for g, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)}


def test_a_group_stays_one_kernel_apart_from_its_neighbours() -> None:
    kernels = prim_funcs(lowered(Grouped))
    assert len(kernels) == 2 and "mine" in kernels
    assert all(int(kernel.attrs["tirx.is_scheduled"]) == 1 for kernel in kernels.values())


def test_a_reshape_between_groups_stays_a_view() -> None:
    @I.ir_module
    class Viewed:
        @R.function(private=True)
        def mine(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
            R.func_attr({"Primitive": 1})
            with R.dataflow():
                a = R.nn.relu(x)
                R.output(a)
            return a

        @R.function(private=True)
        def flat(x: R.Tensor((64,), "float32")) -> R.Tensor((64,), "float32"):
            R.func_attr({"Primitive": 1})
            with R.dataflow():
                a = R.exp(x)
                R.output(a)
            return a

        @R.function
        def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((64,), "float32"):
            cls = Viewed
            with R.dataflow():
                a: R.Tensor((4, 16), "float32") = cls.mine(x)
                b = R.reshape(a, (64,))
                c: R.Tensor((64,), "float32") = cls.flat(b)
                R.output(c)
            return c

    ops = [binding.value.op for block in lowered(Viewed)["main"].body.blocks for binding in block.bindings]
    assert tvm.ir.Op.get("relax.reshape") in ops


def test_relax_build_does_not_fuse_scheduled_kernels_again() -> None:
    x = np.linspace(-2, 2, 64, dtype="float32").reshape(4, 16)
    got = run(lowered(Grouped), x)
    np.testing.assert_allclose(got, np.abs(np.tanh(np.exp(np.maximum(x, 0)))).reshape(64), rtol=1e-5)


def test_without_schedules_the_loops_are_tvms() -> None:
    with uc.host_target():
        plain = FuseRemaining(schedule=False)(Grouped)
    assert all("tirx.is_scheduled" not in kernel.attrs for kernel in prim_funcs(plain).values())


def test_a_group_with_one_thread_has_no_parallel_loop() -> None:
    """Its weights are packed either way, and it computes the same."""
    inputs = [np.random.default_rng(seed).standard_normal((256, 256), "float32") for seed in range(2)]

    def kernels(threads: int | None) -> tuple[list[tirx.For], np.ndarray]:
        mod = lowered(wide_product(inputs[1], threads))
        loops = [loop for kernel in prim_funcs(mod).values() for loop in nodes(kernel.body, tirx.For)]
        return [loop for loop in loops if loop.kind == tirx.ForKind.PARALLEL], run(mod, inputs[0])

    shared, expected = kernels(None)
    alone, got = kernels(1)
    assert shared and not alone
    np.testing.assert_array_equal(got, expected)


def wide_product(weights: np.ndarray, threads: int | None) -> IRModule:
    """``relu(x @ weights)`` as one group of ``threads`` threads."""
    builder, kind = relax.BlockBuilder(), relax.TensorType((256, 256), "float32")
    x, w = relax.Var("x", kind), relax.Var("w", kind)
    with builder.function("group", [x, w], attrs={"Primitive": 1}, private=True):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, w))
            result = builder.emit_output(relax.op.nn.relu(product))
        builder.emit_func_output(result)
    group = builder.get().get_global_var("group")
    if threads is not None:
        builder.update_func(group, builder.get()[group].with_attr(THREADS, threads))
    outer = relax.Var("outer", kind)
    with builder.function("main", [outer]):
        with builder.dataflow():
            call = builder.emit_output(relax.Call(group, [outer, relax.const(weights)], ret_ty=kind))
        builder.emit_func_output(call)
    return builder.get()


ONE_TENSOR = sorted(
    name
    for name, make in graphs.GRAPHS.items()
    if name not in ("opaque_in_the_middle", "control_flow_beside")
    and isinstance(make().ret_ty, relax.TensorType)
)


@pytest.mark.parametrize("name", ONE_TENSOR)
def test_every_little_graph_computes_the_same_after_all_passes(name: str) -> None:
    func = graphs.GRAPHS[name]()
    inputs = graphs.inputs(func)
    with only_backends(), uc.host_target():
        line = tvm.transform.Sequential(
            [AnnotateCandidates(), EstimateCosts(FixedCost()), SearchPartition(), FuseRemaining()]
        )
        got = run(line(IRModule({"main": func})), *inputs)
    np.testing.assert_allclose(got, reference.run(func, inputs)[0], rtol=1e-5, atol=1e-6)


def test_dynamic_shapes_go_through() -> None:
    @I.ir_module
    class Dynamic:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            with R.dataflow():
                a = R.nn.relu(x)
                b = R.exp(a)
                R.output(b)
            return b

    x = np.linspace(-1, 1, 24, dtype="float32").reshape(6, 4)
    np.testing.assert_allclose(run(lowered(Dynamic), x), np.exp(np.maximum(x, 0)), rtol=1e-5)


def one_operator(make, *shapes: tuple[int, ...]) -> IRModule:
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{number}", relax.TensorType(shape, "float32")) for number, shape in enumerate(shapes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(make(*params))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x: R.cumsum(x, axis=1), lambda x: np.cumsum(x, 1)),
        (lambda x: R.cumprod(x, axis=0), lambda x: np.cumprod(x, 0)),
        (lambda x: R.sort(x, axis=1), lambda x: np.sort(x, 1)),
        (lambda x: R.argsort(x, axis=0, dtype="int32"), lambda x: np.argsort(x, 0)),
        (lambda x: R.topk(x, k=3, axis=1, ret_type="values"), lambda x: -np.sort(-x, 1)[:, :3]),
    ],
)
def test_sorts_and_scans_which_have_no_legalization(make, expected) -> None:
    x = np.random.default_rng(0).standard_normal((8, 9)).astype("float32")
    np.testing.assert_allclose(
        run(lowered(one_operator(make, x.shape)), x), expected(x), rtol=1e-5, atol=1e-6
    )


def test_a_kernel_of_a_constant_without_a_root_block() -> None:
    """TVM's scatter is written by hand: whether its constant were better in panels cannot be asked."""
    rng = np.random.default_rng(0)
    x, updates = rng.standard_normal((2, 8, 4)).astype("float32")
    where = np.argsort(rng.standard_normal((8, 4)), axis=0)
    mod = one_operator(lambda a, b: R.scatter_elements(a, relax.const(where), b, axis=0), (8, 4), (8, 4))
    expected = x.copy()
    np.put_along_axis(expected, where, updates, axis=0)
    np.testing.assert_array_equal(run(lowered(mod), x, updates), expected)


def planned(mod: IRModule) -> IRModule:
    """``mod`` with a plan of TVM's kernels, outlined."""
    with only_backends(), uc.host_target():
        passes = [AnnotateCandidates(), EstimateCosts(FixedCost()), SearchPartition()]
        return tvm.transform.Sequential(passes)(mod)


def loops_remarks(mod: IRModule) -> list[str]:
    return [remark for remark in PLAN.read(mod["main"]).remarks if "keeps naive loops" in remark]


def scatter(x, y):
    where = relax.const(np.zeros((8, 4), "int64"))
    return R.nn.relu(R.scatter_elements(x, where, y, axis=0))


def test_the_plan_says_which_kernels_keep_naive_loops_and_why() -> None:
    mod = planned(one_operator(scatter, (8, 4), (8, 4)))
    once = lowered(mod)
    (name,) = (n for n, kernel in prim_funcs(once).items() if UNSCHEDULED in kernel.attrs)
    reason = prim_funcs(once)[name].attrs[UNSCHEDULED]
    assert loops_remarks(once) == [f"TVM kernel {name} keeps naive loops: {reason}"]
    assert loops_remarks(lowered(once)) == loops_remarks(once)
    assert loops_remarks(mod) == loops_remarks(lowered(planned(one_operator(R.exp, (8, 4))))) == []


def test_the_plan_says_which_kernels_our_own_code_fails_on(
    monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    def planted(*_args: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr("unity_collage.schedule.emit", planted)
    after = lowered(planned(one_operator(R.exp, (8, 4))))
    (name,) = prim_funcs(after)
    assert loops_remarks(after) == [f"TVM kernel {name} keeps naive loops: a fault: KeyError: 'planted'"]
    assert len(faults.take()) == 1


def test_what_is_to_be_tuned_has_no_remark() -> None:
    with uc.host_target():
        after = FuseRemaining(schedule=False)(planned(one_operator(scatter, (8, 4), (8, 4))))
    assert loops_remarks(after) == []
