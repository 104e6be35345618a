"""PyTorch as a backend: its kernels have the numbers of numpy, and programs with them say what they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.backends.aten.lowering import HANDLERS
from unity_collage.backends.registry import get
from unity_collage.errors import CollageError
from unity_collage.graph import DataflowGraph, members
from unity_collage.lowering import library_file
from unity_collage.lowering.seal import facts_in
from unity_collage.reference import run
from unity_collage.rules import Found
from unity_collage.target import host_target
from unity_collage.testing.conformance import CASES, Case, case, examine
from unity_collage.testing.conformance.cases import bound, function, weights

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

op: Any = relax.op
nn: Any = relax.op.nn
INDEXES = relax.const(np.array([[-1, 0, 2], [1, -3, 3]]), "int64")
ROWS = relax.const(np.array([[0, 1], [-1, 2]]), "int64")

_UNARY = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "isfinite", "isinf", "isnan", "round",
    "sin", "sinh", "square", "tan", "trunc",
)  # fmt: skip
_BINARY = ("atan2", "equal", "floor_divide", "floor_mod", "greater", "greater_equal", "less", "less_equal",
           "log_add_exp", "mod", "not_equal", "power")  # fmt: skip
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
_SHIFTS = ("left_shift", "right_shift")
_LOGIC = ("logical_and", "logical_or", "logical_xor")


def _batch_norm(x: relax.Expr, *statistics: relax.Expr) -> Any:
    scale, offset, mean, spread = statistics
    return bound(nn.batch_norm(x, scale, offset, mean, bound(op.square(spread)), axis=1, training=False))


MORE: tuple[Case, ...] = (
    *(case(name, getattr(op, name), (3, 5)) for name in _UNARY),
    *(case(name, getattr(op, name), (3, 5), (3, 5)) for name in _BINARY),
    *(case(name, getattr(op, name), (3, 5), (3, 5), dtype="int32") for name in (*_BITS, *_SHIFTS)),
    *(case(name, getattr(op, name), (3, 5), (3, 5), dtype="bool") for name in _LOGIC),
    case("bitwise_not", op.bitwise_not, (3, 5), dtype="int32"),
    case("logical_not", op.logical_not, (3, 5), dtype="bool"),
    case("sign", op.sign, (3, 5), dtype="int32"),
    case("clip", lambda x: op.clip(x, -2, 3), (3, 5), dtype="int8"),
    case("ewise_fma", op.ewise_fma, (3, 5), (3, 5), (3, 5)),
    case("selu", nn.selu, (3, 5)),
    case("prelu", lambda x, slope: nn.prelu(x, slope, axis=1), (3, 5, 4), (5,)),
    case("softplus", lambda x: nn.softplus(x, beta=2.0, threshold=3.0), (3, 5)),
    case("cumprod", lambda x: op.cumprod(x, axis=0), (3, 5)),
    case("cumsum", lambda x: op.cumsum(x, axis=0), (3, 5), dtype="int32"),
    case("sum", lambda x: op.sum(x, axis=[0]), (3, 5), dtype="int32"),
    case("prod", lambda x: op.prod(x, axis=[1]), (3, 5)),
    case("std", lambda x: op.std(x, axis=[0, 2]), (3, 5, 4)),
    case("argmin", lambda x: op.argmin(x, axis=0, keepdims=True), (3, 5)),
    case("argmax of all", op.argmax, (3, 5)),
    case("sort", lambda x: op.sort(x, axis=0, descending=True), (5, 3)),
    case("argsort", lambda x: op.argsort(x, axis=1), (3, 5), dtype="int8"),
    case("topk", lambda x: op.topk(x, k=3, axis=0, ret_type="values"), (5, 3)),
    case("topk", lambda x: op.topk(x, k=3, axis=-1, largest=False, ret_type="both"), (3, 5)),
    case("einsum", lambda x, y: op.einsum((x, y), "bij,bjk->bik"), (2, 3, 4), (2, 4, 5)),
    case("outer", op.outer, (3,), (5,)),
    case("stack", lambda x, y: op.stack([x, y], axis=1), (3, 5), (3, 5)),
    case("split", lambda x: op.split(x, [2, 3], axis=1), (3, 8)),
    case("split", lambda x: op.split(x, 3, axis=0), (7, 2)),
    case("repeat", lambda x: op.repeat(x, 2, axis=1), (3, 5)),
    case("pad", lambda x: nn.pad(x, [1, 0, 0, 2], pad_value=1.5), (3, 5)),
    case("tril", lambda x: op.tril(x, 1), (3, 5)),
    case("triu", lambda x: op.triu(x, -1), (3, 5)),
    case("slice", lambda x: op.strided_slice(x, [0, 2], [1, -3], [4, 7], [2, 1]), (5, 3, 7)),
    case("take", lambda x: op.take(x, INDEXES, axis=1), (3, 4, 2)),
    case("gather_nd", lambda x: op.gather_nd(x, ROWS), (3, 4, 5)),
    case("conv1d_transpose", lambda x, w: nn.conv1d_transpose(x, w, strides=2, padding=1, output_padding=1),
         (1, 4, 5), (4, 3, 3)),
    case("conv3d_transpose", nn.conv3d_transpose, (1, 2, 3, 3, 3), (2, 3, 2, 2, 2)),
    case("conv2d HWIO", lambda x, w: nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO"),
         (1, 6, 5, 4), (3, 3, 4, 2)),
    *(case(f"{name}{rank}d", getattr(nn, f"{name}{rank}d"), (2, 3, *(6,) * rank))
      for name in ("max_pool", "avg_pool") for rank in (1, 3)),
    *(case(f"adaptive_avg_pool{rank}d", getattr(nn, f"adaptive_avg_pool{rank}d"), (2, 3, *(6,) * rank))
      for rank in (1, 3)),
    case("avg_pool2d", lambda x: nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1), count_include_pad=True), (1, 3, 9, 9)),
    case("batch_norm", _batch_norm, (2, 3, 4, 4), (3,), (3,), (3,), (3,)),
    case("instance_norm", lambda x, g, b: nn.instance_norm(x, g, b, 1, [2, 3]), (2, 3, 4, 4), (3,), (3,)),
    case("layer_norm", lambda x, g, b: nn.layer_norm(x, g, b, axes=[1, 2]), (3, 4, 5), (4, 5), (4, 5)),
    case("pixel_shuffle", lambda x: nn.pixel_shuffle(x, 2), (1, 8, 3, 3)),
    case("resize2d", lambda x: op.image.resize2d(x, (7, 9), layout="NHWC", method="nearest_neighbor",
         coordinate_transformation_mode="asymmetric", rounding_method="floor"), (1, 4, 5, 3)),
    case("resize2d", lambda x: op.image.resize2d(x, (7, 9), method="cubic",
         coordinate_transformation_mode="align_corners", cubic_alpha=-0.75), (1, 2, 4, 5)),
    case("resize3d", lambda x: op.image.resize3d(x, (4, 5, 6), method="linear",
         coordinate_transformation_mode="half_pixel"), (1, 2, 3, 3, 3)),
    case("attention", lambda q, k, v: nn.attention(q, k, v, causal_mask="TopLeft"),
         (2, 5, 3, 8), (2, 5, 3, 8), (2, 5, 3, 8)),
    case("attention_bias", nn.attention, (2, 5, 3, 8), (2, 7, 3, 8), (2, 7, 3, 8), (2, 3, 5, 7)),
    case("rows+bias", lambda x, b: op.add(b, op.matmul(x, weights(7, 3))), (2, 5, 7), (3,)),
)  # fmt: skip
"""An example of each operator that the kit lacks."""


def taken(one: Case) -> list[frozenset[str]]:
    """The operators of each kernel that the rule proposes for a case."""
    graph = DataflowGraph(one.make())
    rule = get("torch").rule(host_target())
    return [
        frozenset(graph.nodes[i].op for i in members(found.inside))
        for found in rule.apply(graph)
        if isinstance(found, Found)
    ]


def test_every_operator_is_taken_in_some_form() -> None:
    found = {name for one in (*CASES, *MORE) if one.kind is None for names in taken(one) for name in names}
    assert found == set(HANDLERS)
    assert {"relax.matmul", "relax.add"} in taken(MORE[-1])


def test_their_numbers_are_those_of_numpy() -> None:
    report = examine("torch", MORE)
    assert not report.failed, "\n".join(line for verdict in report.failed for line in verdict.findings)


def _network() -> IRModule:
    """A convolution with channels last, a normalisation and a product, with weights."""

    def body(x: relax.Expr) -> relax.Expr:
        image = nn.conv2d(x, weights(8, 3, 3, 4), padding=1, data_layout="NHWC", kernel_layout="OHWI")
        rows = op.mean(nn.relu(image), axis=[1, 2])
        return op.add(
            op.matmul(nn.layer_norm(rows, weights(8), weights(8), axes=[-1]), weights(8, 5)), weights(5)
        )

    return IRModule({"main": function(body, [(2, 6, 5, 4)])})


def _program() -> uc.Program:
    return uc.compile(_network(), backends=["torch"], measure=False)


def test_a_program_runs_on_one_thread_of_torch_and_changes_nothing_of_it() -> None:
    program, x = _program(), np.linspace(-1, 1, 240, dtype="float32").reshape(2, 6, 5, 4)
    assert program.plan is not None and {kernel.backend for kernel in program.plan["main"].kernels} == {
        "torch"
    }
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = program(x).numpy()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    (wanted,) = run(_network()["main"], [x])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(program(x).numpy(), found)


def test_autocast_of_the_caller_does_not_round_its_kernels() -> None:
    attention = IRModule({"main": function(lambda x: nn.attention(x, x, x), [(2, 5, 3, 8)])})
    program, x = uc.compile(attention, backends=["torch"], measure=False), weights(2, 5, 3, 8).value.numpy()
    wanted = program(x).numpy()
    with torch.autocast("cpu", torch.bfloat16):
        np.testing.assert_array_equal(program(x).numpy(), wanted)


def test_a_saved_program_needs_torch_and_says_so(tmp_path: Path) -> None:
    path, x = tmp_path / "program.so", np.linspace(-1, 1, 240, dtype="float32").reshape(2, 6, 5, 4)
    program = _program()
    program.save(path)
    with library_file.opened(path) as file:
        facts = facts_in(file)
    assert {"aten.relu.out", "aten.mean.out"} <= {*facts["torch"]}
    assert facts["wheels"]["torch"] == torch.__version__
    with pytest.raises(CollageError, match=r"without Python.*calls PyTorch: aten\."):
        program.save(tmp_path / "bundle", bundle=True)
    np.savez(tmp_path / "x.npz", x=x, y=program(x).numpy())
    script = f"""
import sys, numpy as np, unity_collage as uc
from unity_collage.runtime import torch_calls
program, stored = uc.load({str(path)!r}), np.load({str(tmp_path / "x.npz")!r})
assert "torch" not in sys.modules and "tvm" not in sys.modules
np.testing.assert_array_equal(program(stored["x"]).numpy(), stored["y"])
torch_calls.find_spec = lambda name: None
try:
    uc.load({str(path)!r})
except uc.CollageError as error:
    assert str(error).endswith("pip install torch") and "aten.relu.out" in str(error), error
else:
    raise AssertionError("it was loaded")
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.alone
def test_it_is_measured_like_others_and_only_where_it_is_named(tmp_path: Path) -> None:
    network = IRModule({"main": function(lambda x: op.cumsum(R.exp(x), axis=1), [(64, 64)])})
    program = uc.compile(network, backends=["torch"], database=tmp_path / "costs.sqlite", budget_seconds=None)
    assert program.plan is not None
    kernels = program.plan["main"].kernels
    assert {kernel.backend for kernel in kernels} == {"torch"} and all(each.seconds > 0 for each in kernels)
    assert "torch" not in {each.name for each in uc.backends.select(None, host_target())}
