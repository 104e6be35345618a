"""The memory that a plan states, against what the built program allocates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from c_memory import counted, in_use
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

from unity_collage.annotations import PLAN
from unity_collage.lowering.build import build, finish, lower
from unity_collage.lowering.live_memory import RecordMemory, held_by
from unity_collage.lowering.size_classes import size_class
from unity_collage.passes import AnnotateCandidates, EstimateCosts, PlanDevices, SearchPartition
from unity_collage.passes.fuse_remaining import FuseRemaining
from unity_collage.plan.memory import PlanMemory, in_pages
from unity_collage.runtime.virtual_machine import Machines
from unity_collage.search.memory_bounded import MemoryGoal
from unity_collage.target import host_target
from unity_collage.testing.fake_backend import only_backends
from unity_collage.testing.fixed_cost import FixedCost

_ALLOCATE = "vm.builtin.alloc_storage"
_SLACK = 2 * 4096
"""By how many bytes a block of the C library may differ from a storage in pages."""


def built(mod: IRModule) -> tuple[Any, PlanMemory]:
    target = host_target()
    with target:
        executable = build(FuseRemaining()(mod), target)
    return executable, held_by(executable)["main"]


def module_of(
    body: Callable[[relax.BlockBuilder, relax.Var], relax.Expr], shape: tuple[int, ...]
) -> IRModule:
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType(shape, "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            out = builder.emit_output(body(builder, data))
        builder.emit_func_output(out)
    return builder.get()


def chain(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
    """Products of several sizes: values that die, one that lives long, and memory that is used again."""
    rng = np.random.default_rng(0)
    first = value = data
    for columns in (512, 256, 512, 768, 512, 64, 512):
        weight = relax.const(rng.random((int(value.ty.shape[1]), columns), dtype="float32"))
        value = builder.emit(relax.op.matmul(value, weight))
        if columns == 512 and first is data:
            first = value
    return relax.op.add(value, first)


def two_results(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
    one = builder.emit(relax.op.nn.softmax(data))
    turned = builder.emit(relax.op.permute_dims(one))
    product = builder.emit(relax.op.matmul(one, turned))
    flat = builder.emit(relax.op.reshape(product, (-1,)))
    return relax.Tuple([builder.emit(relax.op.cumsum(flat, 0)), one])


@contextmanager
def allocations(sampled: Callable[[], None] = lambda: None) -> Iterator[list[tuple[int, int]]]:
    """The bytes and the address of each storage that TVM's machine allocates, in order; ``sampled`` follows each."""
    allocate = tvm_ffi.get_global_func(_ALLOCATE)
    tensor_in = tvm_ffi.get_global_func("vm.builtin.alloc_tensor")
    found: list[tuple[int, int]] = []

    def noted(machine: Any, shape: Any, *rest: Any) -> Any:
        storage = allocate(machine, shape, *rest)
        tensor = tensor_in(storage, 0, shape, tvm_ffi.dtype("uint8"))
        found.append((int(shape[0]), tensor.data_ptr()))
        sampled()
        return storage

    tvm_ffi.register_global_func(_ALLOCATE, noted, override=True)
    try:
        yield found
    finally:
        tvm_ffi.register_global_func(_ALLOCATE, allocate, override=True)


CASES = pytest.mark.parametrize(("body", "shape"), [(chain, (256, 128)), (two_results, (128, 512))])


@CASES
def test_storages_are_allocated_and_used_again_as_the_plan_tells(body: Any, shape: Any) -> None:
    """TVM's pool gives equal sizes again, so that its addresses tell what was free at each allocation."""
    with allocations() as found:
        executable, memory = built(module_of(body, shape))
        main = Machines(executable).main()
        tvm_ffi.get_global_func("vm.builtin.memory_manager.clear")()
        result = main(tvm.runtime.tensor(np.zeros(shape, "float32")))
    del result
    taken = {address: in_pages(nbytes) for nbytes, address in found}
    (space,) = memory.spaces
    assert len(taken) > 2
    assert space.held == sum(taken.values())
    assert max(space.live) <= space.held


@CASES
@counted
def test_as_many_bytes_are_in_use_as_the_plan_tells(body: Any, shape: Any) -> None:
    """With TVM's naive allocator each storage is a block of the C library, which counts those in use."""
    samples: list[int] = []
    with allocations(lambda: samples.append(in_use())) as found:
        executable, memory = built(module_of(body, shape))
        machine = executable.jit()["vm_load_executable"]()
        machine["vm_initialization"](1, 0, 1)
        data = tvm.runtime.tensor(np.zeros(shape, "float32"))
        machine["main"](data)
        samples.clear()
        found.clear()
        before = in_use()
        machine["main"](data)
    (space,) = memory.spaces
    assert max(samples) - before == pytest.approx(max(space.live), abs=_SLACK * len(found))


def test_a_view_without_an_offset_takes_no_memory() -> None:
    def body(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        value = builder.emit(relax.op.exp(data))
        return relax.op.add(value, builder.emit(relax.op.memory.ensure_zero_offset(value)))

    _, memory = built(module_of(body, (64, 64)))
    assert max(memory.spaces[0].live) == 2 * 64 * 64 * 4


def test_values_of_many_sizes_share_storages() -> None:
    """TVM's pool frees nothing, so each address is one allocation."""
    rows = tvm.tirx.Var("n", "int64")
    data = relax.Var("data", relax.TensorType((rows, 1024), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.negative(data))
        builder.emit_func_output(out)
    with allocations() as found:
        main = Machines(built(builder.get())[0]).main()
        tvm_ffi.get_global_func("vm.builtin.memory_manager.clear")()
        for count in range(257):
            given = np.ones((count, 1024), "float32")
            np.testing.assert_array_equal(main(tvm.runtime.tensor(given)).numpy(), -given)
    assert len(found) == 257
    assert len({address for nbytes, address in found if nbytes}) == len(
        {nbytes for nbytes, _ in found if nbytes}
    )
    assert (
        len({nbytes for nbytes, _ in found}) == 1 + 4 + 6 * 4
    )  # none, up to 4 pages, and between powers of two


def test_classes_of_sizes_are_whole_pages_and_at_most_a_quarter_too_large() -> None:
    nbytes = tvm.tirx.Var("n", "int64")
    size = relax.Var("size", relax.ShapeType([nbytes]))
    builder = relax.BlockBuilder()
    with builder.function("main", [size]):
        builder.emit_func_output(relax.ShapeExpr([size_class(nbytes)]))
    main = Machines(build(builder.get(), host_target())).main()
    powers = [(1 << bits) + more for bits in range(12, 50) for more in (-1, 0, 1)]
    found = {wanted: int(main(tvm_ffi.Shape([wanted]))[0]) for wanted in (0, 1, 20480, 20481, *powers)}
    assert (found[0], found[1], found[20480], found[20481]) == (0, 4096, 20480, 24576)
    for wanted, given in found.items():
        assert given % 4096 == 0
        assert wanted <= given <= in_pages(wanted) * 5 // 4
        assert given == wanted or wanted == 1 or wanted & (wanted - 1)  # powers of two are classes


def test_a_storage_of_unknown_size_is_counted_as_unknown_and_weights_once() -> None:
    builder = relax.BlockBuilder()
    rows = tvm.tirx.Var("n", "int64")
    data = relax.Var("data", relax.TensorType((rows, 64), "float32"))
    weight = relax.const(np.ones((64, 64), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            value = builder.emit(relax.op.matmul(data, weight))
            out = builder.emit_output(relax.op.matmul(value, weight))
        builder.emit_func_output(out)
    _, memory = built(builder.get())
    assert memory.unknown == 2
    assert memory.spaces[0].weights == 64 * 64 * 4
    assert memory.peak == 64 * 64 * 4


@tvm.script.ir_module
class OneOfTwo:
    """The first branch makes a value as large as its input, the second one four times as large."""

    @R.function
    def main(data: R.Tensor((256, 256), "float32"), first: R.Tensor((), "bool")) -> R.Tensor(
        (1024, 256), "float32"
    ):
        if first:
            part = R.nn.relu(data)
            out = R.concat([part, data, part, data], axis=0)
        else:
            out = R.concat([data, data, data, data], axis=0)
        return out


@tvm.script.ir_module
class Calls:
    """A function that another one calls twice, and whose results live together."""

    @R.function
    def main(data: R.Tensor((256, 256), "float32")) -> R.Tensor((256, 256), "float32"):
        first = Calls.turned(data)
        second = Calls.turned(first)
        return R.add(first, second)

    @R.function(private=True)
    def turned(data: R.Tensor((256, 256), "float32")) -> R.Tensor((256, 256), "float32"):
        return R.nn.relu(R.permute_dims(data))


def test_the_result_of_a_function_counts_once() -> None:
    _, memory = built(Calls)
    (space,) = memory.spaces
    one = 256 * 256 * 4
    assert max(space.live) == 3 * one
    assert memory.kernels[0].startswith("turned/")


@tvm.script.ir_module
class TwoDevices:
    """Two virtual devices of one kind: the second one has a copy of the first value, and what is made of it."""

    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @R.function
    def main(data: R.Tensor((256, 256), "float32", "llvm:0")) -> R.Tensor((256, 256), "float32", "llvm:1"):
        here = R.nn.relu(data)
        there = R.to_vdevice(here, "llvm:1")
        return R.exp(there)


@pytest.mark.parametrize(
    ("memories", "kernels", "curves"),
    [
        (None, ["relu", "exp"], {"llvm:0": (1, 1), "llvm:1": (0, 1)}),
        (
            {"llvm:0": "near", "llvm:1": "far"},
            ["relu", "to_vdevice", "exp"],
            {"llvm:0": (1, 1, 0), "llvm:1": (0, 1, 2)},
        ),
    ],
    ids=["shared", "apart"],
)
def test_each_device_has_a_curve_of_its_own(
    memories: dict[str, str] | None, kernels: list[str], curves: dict[str, tuple[int, ...]]
) -> None:
    """In one memory the second device has a second name of the first value, which takes nothing."""
    target, found = host_target(), dict[str, PlanMemory]()
    lowered = lower(PlanDevices(memories=memories)(TwoDevices), target)
    with target:
        finish(lowered, target, RecordMemory(target, [], found))(lowered)
    one = 256 * 256 * 4
    assert [name.removesuffix("_llvm").removeprefix("tir_") for name in found["main"].kernels] == kernels
    assert {space.device: tuple(n // one for n in space.live) for space in found["main"].spaces} == curves


def test_of_branches_the_larger_one_counts() -> None:
    _, memory = built(OneOfTwo)
    (space,) = memory.spaces
    small, large = 256 * 256 * 4, 1024 * 256 * 4
    assert max(space.live) == small + large
    assert space.held <= 2 * large + small


@tvm.script.ir_module
class CallsItself:
    @R.function
    def main(data: R.Tensor((64, 64), "float32"), count: R.Tensor((), "int64")) -> R.Tensor(
        (64, 64), "float32"
    ):
        one = R.exp(data)
        again = R.greater(count, R.const(0, "int64"))
        less = R.subtract(count, R.const(1, "int64"))
        if again:
            two = R.sin(one)
            result: R.Tensor((64, 64), "float32") = CallsItself.main(two, less)
        else:
            result = R.tanh(one)
        return result


def test_a_function_that_calls_itself_is_listed_once() -> None:
    _, memory = built(CallsItself)
    (space,) = memory.spaces
    assert [name.removeprefix("tir_") for name in memory.kernels] == [
        "exp",
        "greater",
        "subtract",
        "sin",
        "tanh",
    ]
    value, scalar = 64 * 64 * 4, 4096
    assert space.live == (
        value,
        value + scalar,
        value + 2 * scalar,
        2 * value + 2 * scalar,
        2 * value + 2 * scalar,
    )
    assert memory.unknown == 1


@CASES
def test_the_search_knows_the_peak_of_the_program(body: Any, shape: Any) -> None:
    """It places values as TVM's planner does."""
    target = host_target()
    with only_backends(), target:
        passes = [AnnotateCandidates(), EstimateCosts(FixedCost({"tvm": 1.0}))]
        costed = tvm.transform.Sequential(passes)(module_of(body, shape))
        found = SearchPartition(memory=MemoryGoal(2**40))(costed)
        executable = build(FuseRemaining()(found), target)
    (said,) = (remark for remark in PLAN.read(found["main"]).remarks if "bytes at most" in remark)
    (space,) = held_by(executable)["main"].spaces
    assert int(said.split()[3]) == space.weights + max(space.live)
