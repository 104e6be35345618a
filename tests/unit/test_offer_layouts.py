"""OfferLayouts on a network of two convolutions: what is offered, and what the search makes of it at given costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import tvm
from relax_calls import function, nn, op
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, PLAN
from unity_collage.graph import DataflowGraph, Signatures
from unity_collage.passes import (
    AnnotateCandidates,
    EstimateCosts,
    OfferLayouts,
    SearchPartition,
    why_not_plan,
)
from unity_collage.plan.candidate import VIEW
from unity_collage.testing.fixed_cost import FixedCost

LAST = {"padding": (1, 1), "data_layout": "NHWC", "kernel_layout": "HWIO"}
X, W = (1, 4, 4, 8), (3, 3, 8, 8)
ANNOTATE = AnnotateCandidates(backends=("tvm",))


def _two(x: relax.Expr, v: relax.Expr, w: relax.Expr) -> relax.Expr:
    """The image between the convolutions is in memory in every plan."""
    return nn.conv2d(nn.relu(nn.conv2d(x, v, **LAST)), w, **LAST)


def _offered(func: relax.Function) -> IRModule:
    with Target("llvm"):
        return tvm.transform.Sequential([ANNOTATE, OfferLayouts(), ANNOTATE])(IRModule({"main": func}))


def _planned(func: relax.Function, costs: Mapping[str, float], **options: Any) -> IRModule:
    """With all other kernels at 10 seconds."""
    passes = [EstimateCosts(FixedCost(costs, default=10.0)), SearchPartition(**options)]
    return tvm.transform.Sequential(passes)(_offered(func))


def _operators(func: relax.Function) -> list[str]:
    return [node.op.removeprefix("relax.").removeprefix("nn.") for node in DataflowGraph(func).nodes]


def _labels(mod: IRModule) -> list[str]:
    return [kernel.label for kernel in PLAN.read(mod["main"]).kernels]


def test_an_image_between_two_kernels_is_offered_in_channels_first() -> None:
    pairs = ["permute_dims", "permute_dims"]
    assert _operators(_offered(function(_two, X, W, W))["main"]) == ["conv2d", "relu", *pairs, "conv2d"]


def test_images_of_one_channel_or_one_pixel_are_the_same_in_both_layouts() -> None:
    for image, weights in (((1, 4, 4, 1), (3, 3, 1, 1)), ((1, 1, 1, 8), W)):
        assert "permute_dims" not in _operators(_offered(function(_two, image, weights, weights))["main"])


def test_no_kernel_gets_lost() -> None:
    func = function(_two, X, W, W)

    def kernels(mod: IRModule) -> set[str]:
        graph = DataflowGraph(mod["main"])
        signatures = Signatures(graph)
        candidates = CANDIDATES.read(mod["main"])
        return {signatures.digest(c.sub_graph(graph)) for c in candidates if c.backend != VIEW}

    with Target("llvm"):
        before = kernels(ANNOTATE(IRModule({"main": func})))
    assert before < kernels(_offered(func))


def test_where_channels_last_is_the_cheapest_nothing_is_moved() -> None:
    mod = _planned(function(_two, X, W, W), {"tvm:conv2d+relu": 5.0})
    plan = PLAN.read(mod["main"])
    assert (plan.seconds, plan.proved) == (15.0, True)
    assert _labels(mod) == ["conv2d+relu", "conv2d"]
    assert "permute_dims" not in _operators(mod["main"])
    assert len(plan.left_behind) == 2


def test_where_channels_first_is_cheaper_both_kernels_use_it() -> None:
    costs = {"tvm:conv2d+relu+permute_dims": 4.0, "tvm:permute_dims+conv2d": 3.0}
    mod = _planned(function(_two, X, W, W), costs)
    assert PLAN.read(mod["main"]).seconds == 7.0
    assert _labels(mod) == ["conv2d+relu+permute_dims", "permute_dims+conv2d"]


def test_a_kernel_of_its_own_changes_the_layout_if_that_pays() -> None:
    costs = {
        "tvm:permute_dims": 1.0,
        "tvm:permute_dims+conv2d": 3.0,
        "tvm:conv2d+relu+permute_dims": 20.0,
    }
    mod = _planned(function(_two, X, W, W), costs)
    assert _labels(mod) == ["conv2d+relu", "permute_dims", "permute_dims+conv2d"]


def test_each_reader_has_the_layout_that_it_is_cheapest_in() -> None:
    builder: Any = relax.BlockBuilder()
    params = [
        relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in (("x", X), ("v", W), ("w", W))
    ]
    with builder.function("main", params):
        with builder.dataflow():
            image = builder.emit(nn.relu(builder.emit(nn.conv2d(params[0], params[1], **LAST))))
            convolved = builder.emit(nn.conv2d(image, params[2], **LAST))
            pooled = builder.emit(nn.max_pool2d(image, (3, 3), (1, 1), padding=(1, 1), layout="NHWC"))
            result = builder.emit_output(op.concat([convolved, pooled], -1))
        builder.emit_func_output(result)
    costs = {
        "tvm:conv2d+relu+permute_dims": 4.0,
        "tvm:permute_dims+conv2d": 3.0,
        "tvm:max_pool2d": 2.0,
        "tvm:permute_dims": 1.0,
    }
    mod = _planned(builder.get()["main"], costs)
    assert _labels(mod) == [
        "conv2d+relu+permute_dims",
        "permute_dims+conv2d",
        "permute_dims",
        "max_pool2d",
        "concat",
    ]


def test_a_plan_with_views_has_a_certificate_that_holds() -> None:
    costs = {"tvm:conv2d+relu": 5.0}
    costed = EstimateCosts(FixedCost(costs, default=10.0))(_offered(function(_two, X, W, W)))
    mod = SearchPartition()(costed)
    assert why_not_plan(costed["main"], mod["main"]) is None


def test_a_greedy_plan_changes_no_layout() -> None:
    """It is what partitioners without costs make, and they have no layouts to choose from."""
    mod = _planned(function(_two, X, W, W), {}, algorithm="greedy")
    assert _labels(mod) == ["conv2d+relu", "conv2d"]


def test_layouts_that_cost_the_same_leave_a_plan_of_two_kernels() -> None:
    """Settling ties between them neither splits a kernel nor adds one; which layout it is, is not promised."""
    costs = {
        "tvm:conv2d+relu": 5.0,
        "tvm:conv2d": 5.0,
        "tvm:relu": 1.0,
        "tvm:conv2d+relu+permute_dims": 5.0,
        "tvm:permute_dims+conv2d": 5.0,
    }
    mod = _planned(function(_two, X, W, W), costs)
    assert PLAN.read(mod["main"]).seconds == 10.0
    assert len(_labels(mod)) == 2


@pytest.mark.parametrize("algorithm", ["exact", "milp"])
def test_both_exact_searches_find_it(algorithm: str) -> None:
    costs = {"tvm:conv2d+relu+permute_dims": 4.0, "tvm:permute_dims+conv2d": 3.0}
    assert PLAN.read(_planned(function(_two, X, W, W), costs, algorithm=algorithm)["main"]).seconds == 7.0
