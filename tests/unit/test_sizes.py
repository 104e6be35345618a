"""Sizes that are known when the program runs: sample sizes, the functions for them, and the switch between these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tvm
from sized_models import decoder, llama
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm_ffi import structural_equal, structural_map

from unity_collage.annotations import PLAN
from unity_collage.cost.model import CostModel, Workload
from unity_collage.cost.shares import with_shares
from unity_collage.errors import ModelError
from unity_collage.frontend.models import import_model
from unity_collage.frontend.sizes import split, with_fixed_sizes
from unity_collage.graph.multiples import as_multiple
from unity_collage.graph.variants import (
    alone,
    called_by_switch,
    is_switch,
    like_of,
    range_of,
    sizes_of,
    variants_in,
)
from unity_collage.lowering.build import finish, lower
from unity_collage.measure.measured import MeasuredCost
from unity_collage.passes import AnnotateCandidates, ChannelsLast, MakeVariants, Prepare
from unity_collage.plan.costs import Cost
from unity_collage.profile.inputs import samples_of, unmet_sizes
from unity_collage.sizes import samples as size_samples
from unity_collage.sizes.samples import between, by_default, combined, members_of, typical
from unity_collage.sizes.variants import varied, with_like, with_variants
from unity_collage.target import host_target

W = relax.const(np.ones((4, 4), np.float32))


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor(("n", "m", 4), "float32")) -> R.Tensor(("n", "m", 4), "float32"):
        with R.dataflow():
            a = R.matmul(x, W)
            b = R.add(R.nn.relu(a), R.matmul(x, W))
            R.output(b)
        return b


def of_shapes(*shapes: tuple[Any, ...]) -> relax.Function:
    """A function with inputs of these shapes, which returns the first."""
    symbols: dict[str, tvm.tirx.Var] = {}

    def size(dim: int | str) -> int | tvm.tirx.Var:
        return symbols.setdefault(dim, tvm.tirx.Var(dim, "int64")) if isinstance(dim, str) else dim

    params = [
        relax.Var(f"x{i}", relax.TensorType([size(dim) for dim in shape], "float32"))
        for i, shape in enumerate(shapes)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(relax.op.nn.relu(params[0])))
    return builder.get()["main"]


@pytest.mark.parametrize("make", [decoder, llama])
def test_single_tokens_are_likely_for_a_decoder_with_a_cache(make: Any) -> None:
    main = import_model(make(layers=1)).mod["main"]
    assert by_default(main) == {"length": (1,)}
    assert typical(main) == {"length": 64, "past": 64}
    assert typical(main, [{"length": 1}]) == {"length": 64, "past": 64}
    assert typical(main, [{"length": 1}, {"length": 4}]) == {"length": 4, "past": 64}
    assert typical(main, [{"length": 1, "past": 1}, {"length": 1, "past": 16}]) == {"length": 1, "past": 16}


def test_prompts_of_a_decoder_are_measured_at_a_length_of_their_own() -> None:
    mod, _ = with_variants(import_model(decoder(layers=1)).mod, [{"length": 1}])
    variant, prompts = called_by_switch(mod["main"])
    assert like_of(mod[variant]) == {"past": 64}
    assert like_of(mod[prompts]) == {"length": 64, "past": 64}
    assert range_of(mod["main"]) and not range_of(mod[prompts])
    assert samples_of(mod) == [{"past": 64, "length": 1}]
    assert unmet_sizes(mod) == [{"past": 32, "length": 64}]


@pytest.mark.parametrize(
    ("kinds", "results"),
    [(["past", "past"], 1), (["past", "new"], 2), (["past"], 2)],
    ids=["one result", "either may be the cache", "one input"],
)
def test_what_only_joins_inputs_is_no_decoder(kinds: list[str], results: int) -> None:
    sizes = {name: tirx.Var(name, "int64") for name in ("past", "new")}
    params = [
        relax.Var(f"p{i}", relax.TensorType([1, sizes[kind], 4], "float32")) for i, kind in enumerate(kinds)
    ]
    tokens = relax.Var("tokens", relax.TensorType([1, sizes["new"]], "int64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [*params, tokens]):
        new = builder.emit(relax.op.take(W, tokens, axis=0))
        joined = [builder.emit(relax.op.concat([params[0], new], 1)) for _ in range(results)]
        builder.emit_func_output(relax.Tuple(joined))
    assert by_default(builder.get()["main"]) == {}


@pytest.mark.parametrize(
    ("samples", "found"),
    [
        ({}, []),
        ({"n": []}, []),
        ({"n": [8, 1, 8]}, [{"n": 1}, {"n": 8}]),
        ({"n": [2, 1], "m": (3,)}, [{"n": 1, "m": 3}, {"n": 2, "m": 3}]),
        ({"n": [1], "m": []}, [{"n": 1}]),
        ({"n": range(1, 513)}, [{"n": 1}, {"n": 8}, {"n": 64}, {"n": 512}]),
    ],
)
def test_every_combination_of_samples_is_a_variant(samples: dict[str, Any], found: list[Any]) -> None:
    assert combined(samples) == found


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        ({"n": [0, 2]}, "the sample size 0 of the dimension 'n' is not positive"),
        ({"n": [1, 2.5]}, "the sample sizes of the dimension 'n' are whole numbers, not .1, 2.5."),
        ({"n": {"few": 1.0}}, "the sample sizes of the dimension 'n' are whole numbers, not .'few'."),
        ({"n": [1, 2, 3, 4, 5], "m": [1, 2, 3, 4]}, "5 of n x 4 of m are 20 combinations .* at most 16"),
    ],
)
def test_too_many_or_impossible_samples_are_refused(samples: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        combined(samples)


def test_combinations_are_counted_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of four long lists would take all memory."""
    monkeypatch.setattr(size_samples, "product", lambda *_: pytest.fail("they were made"))
    with pytest.raises(ModelError, match="are 10000 combinations of sizes"):
        combined({name: [*range(1, 11)] for name in "abcd"})


@pytest.mark.parametrize(
    ("sizes", "members"),
    [
        (range(1, 4), [1, 2, 3]),
        (range(1, 129), [1, 4, 32, 128]),
        (range(32, 513, 32), [32, 64, 256, 512]),
        (range(512, 0, -1), [1, 8, 64, 512]),
        (range(9), [1, 2, 4, 8]),
        (range(-2, 1), [-2, -1, 0]),
        (range(-5, 100, 7), [2, 9, 30, 93]),
        (range(1, 10**12), [1, 8192, 2**27, 10**12 - 1]),
    ],
)
def test_few_members_stand_for_a_range(sizes: range, members: list[int]) -> None:
    assert members_of(sizes) == members


@pytest.mark.parametrize(
    ("shapes", "found"),
    [
        ([(1, 4)], {}),
        ([("n", 4)], {"n": (1, 8, 32)}),
        ([("n", 4), ("n",)], {"n": (1, 8, 32)}),
        ([("n", "length")], {"n": (1, 8), "length": (32, 128)}),
        ([(1, "length", 4)], {"length": (16, 32, 64, 128)}),
        ([("length",)], {"length": (16, 32, 64, 128)}),
        ([("n", 3, "h", "w")], {}),
        ([("n", 3), ("k", 3)], {}),
    ],
)
def test_likely_sizes_of_what_is_free(shapes: list[tuple[Any, ...]], found: dict[str, Any]) -> None:
    assert by_default(of_shapes(*shapes)) == found


@pytest.mark.parametrize(
    ("shapes", "fixed", "samples"),
    [
        ({"n": 1, "x": (1, 2)}, {"n": 1, "x": (1, 2)}, {}),
        ({"n": np.int64(8)}, {"n": 8}, {}),
        ({"n": [1, 8]}, {}, {"n": [1, 8]}),
        ({"n": range(1, 4)}, {}, {"n": range(1, 4)}),
        ({"unknown": (1, 2)}, {"unknown": (1, 2)}, {}),  # the importer says what there is
    ],
)
def test_numbers_fix_a_size_and_lists_are_samples(
    shapes: dict[str, Any], fixed: dict[str, Any], samples: dict[str, Any]
) -> None:
    assert split(shapes, ["x"], ["n"]) == (fixed, samples)


@pytest.mark.parametrize(("name", "what"), [("x", "an input"), ("k", "not one")])
def test_a_range_is_for_a_dimension(name: str, what: str) -> None:
    with pytest.raises(ModelError, match=f"'{name}' is {what}; the free dimensions are: n"):
        split({name: range(1, 3)}, ["x"], ["n"])


def test_a_function_for_each_sample_and_one_for_all_others() -> None:
    mod, remarks = with_variants(Model, [{"n": 1, "m": 2}, {"n": 8, "m": 2}])
    names = ["main_n_1_m_2", "main_n_8_m_2", "main_any_size"]
    assert remarks == ()
    assert sorted(gvar.name_hint for gvar in mod.get_global_vars()) == sorted(["main", *names])
    assert called_by_switch(mod["main"]) == tuple(names)
    assert variants_in(mod) == names[:2]
    assert sizes_of(mod["main_n_8_m_2"]) == {"n": 8, "m": 2}
    assert not relax.analysis.defined_symbolic_vars(mod["main_n_8_m_2"])
    assert [str(dim) for dim in mod["main_any_size"].params[0].ty.shape.values][:2] == ["n", "m"]
    assert all("global_symbol" not in (mod[name].attrs or {}) for name in names)
    plan = PLAN.read(mod["main"])
    assert plan.variants == {"main_n_1_m_2": {"n": 1, "m": 2}, "main_n_8_m_2": {"n": 8, "m": 2}}
    assert plan.remarks == ("plans of their own for n 1, m 2; n 8, m 2; other sizes run main_any_size",)


def test_the_module_can_be_printed_and_read() -> None:
    mod = MakeVariants({"n": [1, 2]})(Model)
    assert structural_equal(tvm.script.from_source(mod.script(show_meta=True)), mod)


def constants(func: relax.Function) -> list[tvm.ir.GenericConst]:
    found: list[relax.Expr] = []
    relax.analysis.post_order_visit(func, found.append)
    return [expr for expr in found if isinstance(expr, tvm.ir.GenericConst)]


def test_constants_that_rewrites_make_are_shared() -> None:
    """``2 * w`` is folded, and then its channels are moved last, in each function alone."""
    w = np.random.default_rng(0).standard_normal((16, 8, 3, 3), dtype=np.float32)
    x = relax.Var("x", relax.TensorType([tvm.tirx.Var("n", "int64"), 8, 5, 5], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            doubled = builder.emit(relax.op.multiply(relax.const(w), relax.const(np.float32(2))))
            y = builder.emit_output(relax.op.nn.conv2d(x, doubled))
        builder.emit_func_output(y)
    mod, _ = with_variants(builder.get(), [{"n": 1}, {"n": 2}])
    names = [name for name in called_by_switch(mod["main"]) if name in ("main_n_1", "main_n_2")]
    for step in (Prepare(), ChannelsLast()):
        mod = step(mod)
        (first,), (second,) = (constants(mod[name]) for name in names)
        assert first.same_as(second)
    np.testing.assert_array_equal(first.value.numpy(), 2 * w.transpose(2, 3, 1, 0))


def test_variants_share_equal_constants() -> None:
    def at(sizes: Mapping[str, int]) -> IRModule:
        """The model with copies of its weights, as an importer makes it."""
        func = relax.transform.BindSymbolicVars(dict(sizes), "main")(Model)["main"]
        copied = structural_map(
            func, (tvm.ir.GenericConst, lambda constant: relax.const(constant.value.numpy()))
        )
        return IRModule({"main": copied})

    mod, _ = with_variants(Model, [{"n": 1, "m": 2}], at)
    first, *others = [*constants(mod["main_any_size"]), *constants(mod["main_n_1_m_2"])]
    assert others and all(other.same_as(first) for other in others)


def test_equal_kernels_of_the_model_are_one_and_others_get_names_of_their_own() -> None:
    @I.ir_module
    class WithKernel:
        @T.prim_func(private=True, s_tir=True)
        def kernel(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.sblock("y"):
                    at = T.axis.spatial(4, i)
                    y[at] = x[at] + T.float32(1)

        @R.function
        def main(x: R.Tensor((4,), "float32"), z: R.Tensor(("n",), "float32")) -> R.Tensor((4,), "float32"):
            cls = WithKernel
            with R.dataflow():
                y = R.call_tir(cls.kernel, (x,), out_ty=R.Tensor((4,), "float32"))
                R.output(y)
            return y

    mod, _ = with_variants(WithKernel, [{"n": 1}, {"n": 2}])
    names = {gvar.name_hint for gvar in mod.get_global_vars()}
    assert names == {"kernel", "main", "main_any_size", "main_n_1", "main_n_2"}


def test_a_main_whose_variable_has_no_type_is_called_too() -> None:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            a = R.nn.relu(x)
            R.output(a)
        return a

    mod, _ = with_variants(IRModule({"main": main}), [{"n": 1}])
    assert {"main_n_1", "main_any_size"} < {gvar.name_hint for gvar in mod.get_global_vars()}
    relax.analysis.check_well_formed(mod)


def test_a_sample_may_leave_another_size_free() -> None:
    n, m = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("m", "int64")
    x = relax.Var("x", relax.TensorType((n, m), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.nn.relu(x))
        builder.emit_func_output(result)
    mod, _ = with_variants(builder.get(), [{"n": 1}])
    assert {gvar.name_hint for gvar in mod.get_global_vars()} == {"main", "main_n_1", "main_any_size"}


def test_other_functions_that_can_be_called_stay() -> None:
    @I.ir_module
    class WithOthers:
        @R.function(private=True)
        def inner(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return x

        @R.function
        def other(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            cls = WithOthers
            return cls.inner(x)

        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            return x

    mod, _ = with_variants(WithOthers, [{"n": 2}])
    names = {gvar.name_hint for gvar in mod.get_global_vars()}
    assert names == {"inner", "other", "main", "main_any_size", "main_n_2"}


def test_variants_have_copies_of_the_functions_that_they_call() -> None:
    @I.ir_module
    class Calling:
        @R.function(private=True)
        def inner(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            y: R.Tensor((n,), "float32") = R.nn.relu(x)
            return y

        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            cls = Calling
            return cls.inner(x)

    mod, _ = with_variants(Calling, [{"n": 2}, {"n": 3}])
    params = [param for func in mod.functions.values() for param in func.params]
    assert len(params) == len(set(params)) == 7, mod


def test_a_size_that_the_model_cannot_have_is_left_out_with_the_reason() -> None:
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        grown = builder.emit(relax.op.reshape(x, (n // 2, 2, 4)))
        builder.emit_func_output(builder.emit(relax.op.nn.relu(grown)))
    mod, remarks = with_variants(builder.get(), [{"n": 3}])
    assert not is_switch(mod["main"])
    assert len(remarks) == 1 and remarks[0].startswith("no variant for n 3: ")


def test_samples_of_a_dimension_that_is_not_free_are_refused() -> None:
    with pytest.raises(ModelError, match="main has no symbolic size 'k'; it has n, m"):
        varied(Model, {"k": [1]})


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ({"n": [1], "m": [16, 32, 64, 128]}, [(1, 23), (1, 91)]),
        ({"n": [1, 4], "m": [16, 32, 64, 128]}, [(1, 23), (1, 91)]),
        ({"n": [1, 8, 32], "m": [4]}, [(3, 4), (15, 4)]),
        ({"n": [1, 2], "m": [4]}, []),
        ({"n": [2, 4, 6], "m": [4]}, [(3, 4), (5, 4)]),
        ({"n": [4], "m": [4]}, []),
    ],
)
def test_a_plan_for_all_sizes_is_weighed_at_odd_sizes_between_samples(
    samples: dict[str, list[int]], expected: list[tuple[int, int]]
) -> None:
    found = between(Model["main"], combined(samples))
    assert [tuple(sizes.values()) for sizes in found] == expected


def of_multiples() -> IRModule:
    """A model with rows that are a multiple of 32."""
    rows = tvm.tirx.Var("rows", "int64")
    x = relax.Var("x", relax.TensorType([rows, 4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        cast = builder.match_cast(x, relax.TensorType([as_multiple(rows, 32), 4], "float32"))
        builder.emit_func_output(builder.emit(relax.op.nn.relu(cast)))
    return builder.get()


def test_sizes_between_samples_are_multiples_where_the_model_wants_them() -> None:
    assert between(of_multiples()["main"], [{"rows": 64}, {"rows": 128}]) == [{"rows": 96}]


@pytest.mark.parametrize(
    ("samples", "unmet"), [([32, 128], [64]), ([96], [32]), ([32, 96, 320], [64, 192]), ([32, 64], [])]
)
def test_programs_are_called_between_samples_with_multiples_only(
    samples: list[int], unmet: list[int]
) -> None:
    mod, _ = with_variants(of_multiples(), [{"rows": rows} for rows in samples])
    assert unmet_sizes(mod) == [{"rows": rows} for rows in unmet]


def test_a_sample_that_is_not_a_multiple_is_left_out() -> None:
    given = of_multiples()
    mod, (remark,) = with_variants(given, [{"rows": 33}], lambda sizes: with_fixed_sizes(given, {}, sizes))
    assert not is_switch(mod["main"])
    assert remark == "no variant for rows 33: rows is a multiple of 32"


def test_no_samples_and_no_likely_sizes() -> None:
    whole = varied(Model, {"n": []})[0]
    assert not is_switch(whole["main"]) and like_of(whole["main"]) == {"n": 8, "m": 128}
    mod, (remark,) = varied(IRModule({"main": of_shapes(("n", 3, "h", "w"))}), {})
    assert not is_switch(mod["main"])
    sizes = [{"n": 1, "h": 224, "w": 224}, {"n": 1, "h": 320, "w": 416}]
    assert range_of(mod["main"]) == [(sizes[0], 0.5), (sizes[1], 0.5)]
    assert remark == (
        "one plan for all sizes, measured at n 1, h 224, w 224; n 1, h 320, w 416: shapes= or --shape give others"
    )


def test_the_switch_is_no_function_to_be_partitioned() -> None:
    with host_target():
        mod = AnnotateCandidates(("tvm",))(Prepare()(MakeVariants({"n": [1], "m": [2]})(Model)))
    before = MakeVariants({"n": [1], "m": [2]})(Model)
    assert mod["main"].script() == before["main"].script()
    assert "collage.candidates" not in mod["main"].attrs
    assert "collage.candidates" in mod["main_n_1_m_2"].attrs


def test_a_variant_alone_is_a_model_of_its_sizes() -> None:
    mod = alone(MakeVariants({"n": [1, 2], "m": [3]})(Model), "main_n_2_m_3")
    assert [gvar.name_hint for gvar in mod.get_global_vars()] == ["main"]
    assert mod["main"].attrs["global_symbol"] == "main"
    assert [int(dim) for dim in mod["main"].params[0].ty.shape.values] == [2, 3, 4]


def test_memory_of_variants_is_planned_although_the_switch_has_branches() -> None:
    target = host_target()
    lowered = lower(MakeVariants({"n": [1], "m": [2]})(Model), target)
    steps = [step.info.name for step in finish(lowered, target).passes]
    assert "StaticPlanBlockMemory" in steps


class _Watching(CostModel):
    """Knows the part of the time that a question has."""

    part = 1.0

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        raise AssertionError(workloads)

    @contextmanager
    def sharing(self, part: float) -> Iterator[None]:
        self.part = part
        yield
        self.part = 1.0


def test_each_function_has_its_share_of_the_time_and_what_is_left_goes_to_the_next() -> None:
    mod, model, seen = MakeVariants({"n": [2, 16, 128], "m": [4]})(Model), _Watching(), []

    def change(func: Any) -> Any:
        seen.append((sizes_of(func).get("n"), model.part))
        return func

    with_shares(mod, model, change)
    order = [size for size, _ in seen[:4]]
    assert order == [2, None, 128, 16], "the function for all sizes comes second, then large sizes"
    before = 0.85  # the rest is for weighing the function for all sizes over the samples
    assert [part for _, part in seen[:4]] == pytest.approx([before * p for p in (0.4, 0.7, 0.85, 1.0)])
    assert all(entry == (None, 1.0) for entry in seen[4:])


def test_few_of_many_variants_have_a_share_that_is_enough() -> None:
    mod, model, parts = MakeVariants({"n": list(range(1, 9)), "m": [4]})(Model), _Watching(), []

    def change(func: Any) -> Any:
        parts.append(model.part)
        return func

    with_shares(mod, model, change)
    assert parts[:9] == pytest.approx([0.85 * p for p in (0.4, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0)])


def test_a_share_ends_before_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = MeasuredCost(budget_seconds=100.0)
    monkeypatch.setattr(costs._session, "seconds_since_start", lambda: 80.0)
    assert not costs.is_budget_spent()
    with costs.sharing(0.2):  # 75 s for new costs, and a fifth of the others for measuring some once more
        assert costs.is_budget_spent()
    with costs.sharing(0.5):
        assert not costs.is_budget_spent()
    assert not costs.is_budget_spent()


def test_the_last_pass_has_all_time_that_is_left_for_new_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = MeasuredCost(budget_seconds=100.0)
    monkeypatch.setattr(costs._session, "seconds_since_start", lambda: 80.0)
    assert costs._seconds_left() == 0.0, "75 s are for new costs, and the others for measuring some once more"
    with costs.finishing():
        assert costs._seconds_left() == 20.0 and costs._seconds_to_answer() == 20.0
        assert not costs._is_spent(costs._first_part())
    assert costs._seconds_left() == 0.0


def test_the_last_pass_has_some_time_where_searches_took_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder of T5 had no weighed plan: searches behind the measuring took what was kept for it."""
    costs = MeasuredCost(budget_seconds=100.0)
    monkeypatch.setattr(costs._session, "seconds_since_start", lambda: 130.0)
    with costs.finishing():
        assert costs._seconds_left() == pytest.approx(15.0)
        assert not costs._is_spent(costs._first_part())
        assert costs.is_budget_spent(), "for all else"
    assert costs._seconds_left() == 0.0


def _with_free(shape: Sequence[Any], build: Any) -> IRModule:
    builder = relax.BlockBuilder()
    symbols = {name: tirx.Var(name, "int64") for name in shape if isinstance(name, str)}
    x = relax.Var("x", relax.TensorType([symbols.get(size, size) for size in shape], "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(build(x)))
    return builder.get()


def _windows(x: relax.Var) -> relax.Expr:
    return relax.op.nn.conv1d(x, relax.const(np.zeros((2, 3, 100), "float32")))


def test_kernels_are_measured_at_sizes_that_the_model_can_have() -> None:
    assert typical(_with_free((1, 3, "n"), _windows)["main"]) == {"n": 256}
    frames = relax.const(np.zeros((2, 3, 128), "float32"))
    strided = _with_free((1, 3, "n"), lambda x: relax.op.nn.conv1d(x, frames, strides=128))
    assert typical(strided["main"]) == {"n": 256}, "64 make no frame at all"
    squared = _with_free(("n", "m"), lambda x: relax.op.matmul(x, x))
    assert typical(squared["main"]) == {"n": 1, "m": 1}


def test_where_no_size_fits_nothing_is_measured() -> None:
    fixed = _with_free(("n", "m", "k"), lambda x: relax.op.reshape(x, (7, 11, 13)))
    mod, (remark,) = varied(fixed, {})
    assert not like_of(mod["main"])
    assert "no sizes were found that fit" in remark


def test_a_sample_at_which_nothing_can_be_measured_is_left_out() -> None:
    """Windows of 100 need images that are too large to be tried in batches of 512."""
    windows = relax.const(np.zeros((2, 3, 100, 100), "float32"))
    images = _with_free(("b", 3, "h", "w"), lambda x: relax.op.nn.conv2d(x, windows))
    mod, _ = with_variants(images, [{"b": 1}, {"b": 512}])
    assert variants_in(mod) == ["main_b_1"]
    assert "no variant for b 512: no sizes of h, w were found that fit" in PLAN.read(mod["main"]).remarks[1]
    assert {frozenset(sizes) for sizes, _ in range_of(mod["main"])} == {frozenset("bhw")}


def test_samples_without_variants_are_where_the_plan_is_weighed() -> None:
    liked = with_like(Model, {"n": {4: 3, 16: 1}, "m": [2]})
    assert not is_switch(liked["main"]) and like_of(liked["main"]) == {"n": 16, "m": 2}
    assert range_of(liked["main"]) == [({"n": 4, "m": 2}, 0.75), ({"n": 16, "m": 2}, 0.25)]
    assert like_of(with_like(Model, {"n": [3]})["main"])["n"] == 3
    with pytest.raises(ModelError, match="no symbolic size 'k'"):
        with_like(Model, {"k": [3]})


def test_variants_have_no_negative_sizes() -> None:
    mod, remarks = with_variants(_with_free((1, 3, "n"), _windows), [{"n": 10}, {"n": 120}])
    (variant,) = variants_in(mod)
    assert sizes_of(mod[variant]) == {"n": 120}
    assert not remarks


def test_weights_and_sizes_that_a_user_gives_may_be_large() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([tirx.Var("n", "int64"), 9000], "float32"))
    weight = relax.Var("weight", relax.TensorType([9000, 9000], "float32"))
    with builder.function("main", [x, weight]):
        builder.emit_func_output(builder.emit(relax.op.matmul(x, weight)))
    main = builder.get()["main"]
    assert typical(main) == {"n": 8}
    assert typical(main, [{"n": 2**16}]) == {"n": 2**16}
