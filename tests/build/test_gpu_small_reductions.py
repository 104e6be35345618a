"""One thread for each result of a small reduction: its loops, and their numbers without threads on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from gpu_loops import TARGET, without_threads
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.relax import op

from unity_collage import reference
from unity_collage.lowering.fuse import fused
from unity_collage.schedule import gpu
from unity_collage.target import host_target

nn: Any = op.nn


def pooled(x: Any) -> Any:
    return op.multiply(
        nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1), layout="NHWC", count_include_pad=False),
        relax.const(2.0),
    )


def depthwise(x: Any, weight: Any, bias: Any) -> Any:
    conv = nn.conv2d(x, weight, padding=1, groups=9, data_layout="NHWC", kernel_layout="HWOI")
    return op.clip(op.add(conv, bias), 0, 6)


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "pooling": (pooled, [(1, 11, 9, 7)]),
    "depthwise": (depthwise, [(2, 7, 9, 9), (3, 3, 9, 1), (9,)]),
    "sum": (lambda x: op.sum(x, axis=[1]), [(5, 6, 301)]),
}


def kernel(body: Callable[..., Any], shapes: list[tuple[int, ...]]) -> tuple[IRModule, tirx.PrimFunc]:
    """A module of this body, and its one kernel."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(body(*params)))
        builder.emit_func_output(result)
    module = builder.get()
    (found,) = (
        each
        for each in fused(module, TARGET, schedule=False).functions.values()
        if isinstance(each, tirx.PrimFunc)
    )
    return module, found


@pytest.mark.parametrize("name", CASES)
def test_each_thread_computes_one_result(name: str) -> None:
    body, shapes = CASES[name]
    module, func = kernel(body, shapes)
    found = gpu._by_rule(gpu.SmallReduction(), func, TARGET)
    assert isinstance(found, tirx.PrimFunc), found
    assert gpu.scheduled_on_gpu(func, TARGET, name).script() == found.script()
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape, dtype="float32") for shape in shapes]
    (expected,) = reference.run(module["main"], inputs)
    result = tvm.runtime.tensor(np.full_like(expected, np.nan))
    compiled = tvm.compile(without_threads(found).with_attr("global_symbol", "main"), host_target())
    compiled(*map(tvm.runtime.tensor, inputs), result)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "axis"), [((4, 4096), 1), ((8, 200), 1)], ids=["a long row", "few results of a longer row"]
)
def test_a_block_of_threads_reduces_a_longer_row(shape: tuple[int, ...], axis: int) -> None:
    _, func = kernel(lambda x: op.sum(x, axis=[axis]), [shape])
    assert gpu._by_rule(gpu.SmallReduction(), func, TARGET) is None


def test_a_short_row_has_64_threads() -> None:
    _, func = kernel(lambda x: nn.softmax(x), [(24, 128)])
    assert "T.int64(64), thread=" in gpu.scheduled_on_gpu(func, TARGET, "softmax").script()
    _, func = kernel(lambda x: nn.softmax(x), [(24, 1024)])
    assert "T.int64(256), thread=" in gpu.scheduled_on_gpu(func, TARGET, "softmax").script()
