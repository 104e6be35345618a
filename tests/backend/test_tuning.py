"""Tuned schedules: what is tuned, that it is tuned once, and that what was measured is what the program contains."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage import runtime
from unity_collage.annotations import COSTS, SCHEDULES, plain
from unity_collage.cost.asking import workloads
from unity_collage.cost.method import Method
from unity_collage.cost.model import Capability, TunedCost, Workload
from unity_collage.errors import CollageError, MissingCost
from unity_collage.measure.inputs import random_inputs
from unity_collage.measure.kernels import build_kernel, unscheduled_kernel
from unity_collage.measure.measured import MeasuredCost
from unity_collage.measure.tuning import meta_schedule
from unity_collage.measure.tuning.costs import Tuning, tuning_folder, with_schedule
from unity_collage.measure.tuning.records import Tuned, TuningRecords
from unity_collage.measure.tuning.tuner import Tuner
from unity_collage.passes import (
    AnnotateCandidates,
    EstimateCosts,
    FuseRemaining,
    OffloadBYOC,
    SearchPartition,
)
from unity_collage.plan.costs import Cost
from unity_collage.schedule.tuned import kernel_name, schedule_of, with_tuned_schedules
from unity_collage.testing.fixed_cost import FixedCost

QUICK = Method(min_runs=3, max_runs=3, max_seconds=0.02, max_warmup_seconds=0.0)
without_meta_schedule = pytest.mark.skipif(
    meta_schedule.why_unavailable() is not None, reason=str(meta_schedule.why_unavailable())
)


def net() -> IRModule:
    """One product."""
    x, y = (relax.Var(name, relax.TensorType((16, 16), "float32")) for name in "xy")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            product = builder.emit_output(R.matmul(x, y))
        builder.emit_func_output(product)
    return builder.get()


def annotated(*backends: str) -> IRModule:
    with uc.host_target():
        return AnnotateCandidates(backends)(net())


def product() -> Workload:
    """The question about the product as a kernel of TVM."""
    (question,) = workloads(annotated("tvm")["main"], FixedCost()).values()
    return question


def by_hand(kernel: tirx.PrimFunc) -> str:
    """A schedule that no tuner would choose: the columns first."""
    schedule = schedule_of(kernel)
    rows, columns, _ = schedule.get_loops(schedule.get_sblock("matmul"))
    schedule.reorder(columns, rows)
    return json.dumps(plain(schedule.trace.as_json()))


def kernels(mod: IRModule) -> list[tirx.PrimFunc]:
    return [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]


class Tunes(FixedCost):
    """Given costs; a tuned kernel takes ``seconds["tuned"]``."""

    capabilities = frozenset({Capability.TUNE})

    def __init__(self, bounds: Mapping[str, float], **seconds: float):
        super().__init__(seconds)
        object.__setattr__(self, "bounds", bounds)
        object.__setattr__(self, "asked", [])

    bounds: Mapping[str, float]
    asked: list[str]

    def lower_bounds(self, questions: Sequence[Workload]) -> dict[str, float]:
        return {question.key: self.bounds[question.backend] for question in questions}

    @contextmanager
    def tuning(self, trials: int) -> Iterator[Tunes]:
        assert trials == 4
        yield self

    def tuned(self, question: Workload) -> TunedCost | None:
        self.asked.append(question.label)
        kernel = unscheduled_kernel(question.func, uc.host_target())
        name, trace = kernel_name(kernel), by_hand(kernel)
        seconds = float(self.seconds["tuned"])
        return TunedCost(with_schedule(question, name, trace), Cost(seconds), name, trace)


def tuned_module(model: Any, *backends: str) -> IRModule:
    with uc.host_target():
        return EstimateCosts(model, tune_trials=4)(annotated(*backends))


def test_the_program_contains_exactly_the_schedule_that_was_measured() -> None:
    mod = tuned_module(Tunes({"tvm": 1e-7}, tvm=2e-6, tuned=1e-6), "tvm")
    costs = COSTS.read(mod["main"])
    ((key, cost),) = costs.by_key.items()
    assert cost.seconds == 1e-6 and set(costs.keys.values()) == {key}

    with uc.host_target():
        final = FuseRemaining()(OffloadBYOC()(SearchPartition()(mod)))
        alone = FuseRemaining(schedule=False)(SearchPartition()(mod))
    (kernel,), (unscheduled,) = kernels(final), kernels(alone)
    question = with_schedule(product(), kernel_name(unscheduled), by_hand(unscheduled))
    assert question.key == key
    with uc.host_target():
        costed = FuseRemaining()(_caller_of(question))
    assert tvm_ffi.structural_equal(kernel, kernels(costed)[0])
    assert SCHEDULES not in (final.attrs or {})
    assert not tvm_ffi.structural_equal(kernel, kernels(_fused(annotated("tvm")))[0]), "ours is another one"


def _caller_of(question: Workload) -> IRModule:
    from unity_collage.measure import kernels as making

    return making._caller(question.func, {})


def _fused(mod: IRModule) -> IRModule:
    with uc.host_target():
        return FuseRemaining()(mod)


def test_a_measured_kernel_runs_with_its_schedule() -> None:
    question = product()
    kernel = unscheduled_kernel(question.func, uc.host_target())
    variant = with_schedule(question, kernel_name(kernel), by_hand(kernel))
    arrays = random_inputs(variant.func)
    function, constants = build_kernel(variant.func, arrays, uc.backends.get("tvm"), uc.host_target())
    out = tvm.runtime.empty((16, 16), "float32")
    function(*map(tvm.runtime.tensor, arrays), *constants, out)
    assert abs(out.numpy() - arrays[0] @ arrays[1]).max() < 1e-4
    assert variant.key.startswith(f"{question.key}:") and variant.digest == question.digest


def product_with_weights(weights: relax.Expr | None = None) -> IRModule:
    """x @ w, the right operand a parameter unless it is given."""
    x, w = (relax.Var(name, relax.TensorType((16, 16), "float32")) for name in "xw")
    builder = relax.BlockBuilder()
    with builder.function("main", [x] if weights is not None else [x, w]):
        with builder.dataflow():
            product = builder.emit_output(R.matmul(x, weights if weights is not None else w))
        builder.emit_func_output(product)
    return builder.get()


def turning(kernel: tirx.PrimFunc) -> str:
    """A schedule that reads the right operand turned over, as MetaSchedule writes one."""
    schedule = schedule_of(kernel)
    block = schedule.get_sblock("matmul")
    copy = schedule.cache_read(block, 1, "global")
    schedule.annotate(copy, "meta_schedule.layout_rewrite_preproc", True)
    schedule.transform_layout(block, ("read", 1), lambda i, j: (j // 8, i, j % 8))
    return json.dumps(plain(schedule.trace.as_json()))


def with_turning_schedule(weights: relax.Expr | None) -> tuple[IRModule, IRModule]:
    """The final module of a product whose tuned schedule turns its right operand over, and the partitioned one."""
    with uc.host_target():
        annotated = AnnotateCandidates(("tvm",))(product_with_weights(weights))
        (question,) = workloads(annotated["main"], FixedCost()).values()
        kernel = unscheduled_kernel(question.func, uc.host_target())
        partitioned = SearchPartition()(EstimateCosts(FixedCost({"tvm": 1e-6}))(annotated))
        final = FuseRemaining()(partitioned.with_attr(SCHEDULES, {kernel_name(kernel): turning(kernel)}))
    return final, partitioned


def test_constants_are_stored_in_the_layout_of_a_tuned_schedule() -> None:
    weights = np.random.default_rng(0).random((16, 16), "float32")
    final, partitioned = with_turning_schedule(relax.const(weights))
    (kernel,) = kernels(final)
    assert [tuple(map(int, param.shape)) for param in kernel.params] == [(16, 16), (2, 16, 8), (16, 16)]
    before = {gvar.name_hint for gvar in partitioned.functions}
    assert {gvar.name_hint for gvar in final.functions} == before, "reports tell kernels by their names"
    x = np.random.default_rng(1).random((16, 16), "float32")
    machine = relax.VirtualMachine(relax.build(final, uc.host_target()), tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(got, x @ weights, rtol=1e-5)


def test_only_the_largest_constant_of_a_kernel_is_free() -> None:
    x = relax.Var("x", relax.TensorType((8, 16), "float32"))
    weights, added = (relax.const(np.ones(shape, "float32")) for shape in ((16, 16), (8, 16)))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(R.matmul(x, weights))
            result = builder.emit_output(R.add(product, added))
        builder.emit_func_output(result)
    with uc.host_target():
        annotated = AnnotateCandidates(("tvm",))(builder.get())
    (whole,) = (
        each for each in workloads(annotated["main"], FixedCost()).values() if each.label == "matmul+add"
    )
    kernel = unscheduled_kernel(whole.func, uc.host_target())
    (free,) = kernel.attrs["layout_free_buffers"]
    assert tuple(map(int, kernel.params[int(free)].shape)) == (16, 16)


def test_a_variable_is_copied_in_its_kernel_if_a_schedule_turns_it_over() -> None:
    final, _ = with_turning_schedule(None)
    assert len(kernels(final)) == 1
    x, w = np.random.default_rng(0).random((2, 16, 16), "float32")
    machine = relax.VirtualMachine(relax.build(final, uc.host_target()), tvm.cpu())
    got = machine["main"](*map(tvm.runtime.tensor, (x, w))).numpy()
    np.testing.assert_allclose(got, x @ w, rtol=1e-5)


def test_the_measured_kernel_reads_its_constants_as_the_final_one() -> None:
    weights = relax.const(np.random.default_rng(0).random((16, 16), "float32"))
    with uc.host_target():
        annotated = AnnotateCandidates(("tvm",))(product_with_weights(weights))
    (question,) = workloads(annotated["main"], FixedCost()).values()
    kernel = unscheduled_kernel(question.func, uc.host_target())
    assert list(kernel.attrs["layout_free_buffers"]) == [1]
    variant = with_schedule(question, kernel_name(kernel), turning(kernel))
    arrays = random_inputs(variant.func)
    function, constants = build_kernel(variant.func, arrays, uc.backends.get("tvm"), uc.host_target())
    assert [constant.shape for constant in constants] == [(2, 16, 8)]
    out = tvm.runtime.empty((16, 16), "float32")
    function(tvm.runtime.tensor(arrays[0]), *constants, out)
    np.testing.assert_allclose(out.numpy(), arrays[0] @ arrays[1], rtol=1e-5)


@without_meta_schedule
def test_the_tuner_times_kernels_whose_weights_it_may_turn_over(tmp_path: Path) -> None:
    weights = relax.const(np.random.default_rng(0).random((16, 16), "float32"))
    with uc.host_target():
        annotated = AnnotateCandidates(("tvm",))(product_with_weights(weights))
    (question,) = workloads(annotated["main"], FixedCost()).values()
    kernel = unscheduled_kernel(question.func, uc.host_target())
    with Tuner(tmp_path, 4) as search:
        tuned = search.tuned(kernel, uc.host_target())
    assert "layout_rewrite_preproc" in tuned.trace and tuned.seconds


@without_meta_schedule
def test_the_tuner_schedules_the_loops_around_a_library_call(tmp_path: Path) -> None:
    if reason := runtime.why_unavailable("openblas"):
        pytest.skip(reason)
    x, w = (relax.Var(name, relax.TensorType((16, 16), "float32")) for name in "xw")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            result = builder.emit_output(R.exp(builder.emit(R.matmul(builder.emit(R.tanh(x)), w))))
        builder.emit_func_output(result)
    with uc.host_target():
        annotated = AnnotateCandidates(("tvm_openblas", "tvm"))(builder.get())
    asked = workloads(annotated["main"], FixedCost()).values()
    whole = next(w for w in asked if (w.backend, w.label) == ("tvm_openblas", "tanh+matmul+exp"))
    kernel = unscheduled_kernel(whole.func, uc.host_target())
    with Tuner(tmp_path, 4) as search:
        tuned = search.tuned(kernel, uc.host_target())
    assert tuned.seconds, (tmp_path / "tuner.log").read_text()[-2000:]
    variant = with_schedule(whole, tuned.kernel, tuned.trace)
    arrays = random_inputs(variant.func)
    function, constants = build_kernel(
        variant.func, arrays, uc.backends.get("tvm_openblas"), uc.host_target()
    )
    out = tvm.runtime.empty((16, 16), "float32")
    function(*map(tvm.runtime.tensor, arrays), *constants, out)
    np.testing.assert_allclose(out.numpy(), np.exp(np.tanh(arrays[0]) @ arrays[1]), rtol=1e-4)


@pytest.mark.parametrize(
    ("bound", "tuned"),
    [(2e-6, []), (1e-6, []), (5e-7, ["matmul"])],
    ids=["cannot win", "would be as good", "could win"],
)
def test_only_what_could_still_win_is_tuned(bound: float, tuned: list[str]) -> None:
    model = Tunes({"tvm": bound}, onednn=1e-6, tvm=3e-6, tuned=2.5e-6)
    costs = COSTS.read(tuned_module(model, "onednn", "tvm")["main"])
    assert model.asked == tuned
    assert {key.split(":")[0] for key in costs.by_key} == {"onednn", "tvm"}


def test_other_models_cannot_tune() -> None:
    with pytest.raises(CollageError, match="kernels are not tuned: FixedCost cannot tune kernels"):
        tuned_module(FixedCost(), "tvm")


def test_schedules_are_for_the_kernels_that_they_name() -> None:
    plain_module = IRModule({"kernel": unscheduled_kernel(product().func, uc.host_target())})
    other = plain_module.with_attr(SCHEDULES, {"0" * 16: "[[], []]"})
    assert tvm_ffi.structural_equal(with_tuned_schedules(other)["kernel"], plain_module["kernel"])
    assert with_tuned_schedules(plain_module).same_as(plain_module)


def test_a_name_is_of_the_computation() -> None:
    kernel = unscheduled_kernel(product().func, uc.host_target())
    assert kernel_name(kernel) == kernel_name(kernel.with_attr("global_symbol", "another"))


class Scripted:
    """In place of the process of MetaSchedule: counts the trials that it is asked for."""

    stage = "reading the question"

    def __init__(self, replies: Iterable[Mapping[str, Any]]):
        self.trials: list[int] = []
        self._replies = iter(replies)

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.trials.append(request["trials"])
        return next(self._replies)

    def close(self) -> None: ...


def tuner(folder: Path, trials: int, process: Scripted) -> Tuner:
    made = Tuner(folder, trials)
    made._child = process  # type: ignore[assignment]
    return made


@without_meta_schedule
def test_nothing_is_tuned_twice(tmp_path: Path) -> None:
    kernel, target = unscheduled_kernel(product().func, uc.host_target()), uc.host_target()
    process = Scripted([{"trace": "[1]", "seconds": 1.0}, {"trace": "[2]", "seconds": 0.5}])
    for trials in (8, 8, 4, 20, 20):
        tuner(tmp_path, trials, process).tuned(kernel, target)
    assert process.trials == [8, 12], "what is known counts"
    assert tuner(tmp_path, 20, process).tuned(kernel, target).trace == "[2]"
    another = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    assert tuner(tmp_path, 20, process).known(kernel, another) is None, "a schedule is for one target"


@without_meta_schedule
def test_a_failure_of_the_tuner_is_told_and_not_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel keeps its own schedule, which the compile goes on with."""
    kernel = unscheduled_kernel(product().func, uc.host_target())
    made = tuner(tmp_path, 4, Scripted([{"reason": "the process crashed: SIGSEGV"}]))
    tuning = Tuning(
        made, uc.host_target(), lambda _: {}, False, is_budget_spent=lambda: False, progress=lambda *_: None
    )
    assert tuning.tuned(product()) is None
    assert re.search(
        r"MetaSchedule has failed, .*: the process crashed: SIGSEGV; see .*tuner.log", caplog.text
    )
    assert made.known(kernel, uc.host_target()) is None


def test_a_line_that_a_killed_process_has_left_does_no_harm(tmp_path: Path) -> None:
    records, target = TuningRecords(tmp_path / "new"), uc.host_target()
    kept = Tuned("name", str(target), tvm.__version__, 4, "[]", 1.0)
    records.keep(kept)
    with (tmp_path / "new" / "tuned.jsonl").open("a") as file:
        file.write('{"kernel": "na')
    assert records.known("name", target) == kept


def test_without_the_extra_the_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meta_schedule, "find_spec", lambda name: None if name == "xgboost" else name)
    kernel = unscheduled_kernel(product().func, uc.host_target())
    with pytest.raises(CollageError, match=r"xgboost missing: pip install 'unity_collage\[tune\]'"):
        Tuner(tmp_path, 4).tuned(kernel, uc.host_target())


def test_integers_for_a_kernel_that_is_tuned_may_index_something() -> None:
    ((indexes, values),) = meta_schedule.arguments(
        tvm.cpu(), [["TENSOR", "int64", [64]], ["TENSOR", "float32", [3]]], 1
    )
    assert set(indexes.numpy()) == {0, 1} and values.numpy().shape == (3,)


@without_meta_schedule
def test_a_kernel_is_tuned_and_measured(tmp_path: Path) -> None:
    database = uc.CostDatabase(tmp_path / "costs.sqlite")
    question, target = product(), uc.host_target()
    with target, MeasuredCost(database, method=QUICK) as model:
        with model.tuning(4) as tuning:
            tuning.tuned(question)
            first = len(database)
            tuning.tuned(question)
        costs = {cost.key: cost for cost in database.costs()}
    assert len(costs) == first == 2, "ours and the tuned one, timed against each other, once"
    assert all(cost.seconds for cost in costs.values()), [cost.reason for cost in costs.values()]
    (variant,) = costs.keys() - {question.key}
    assert tvm.ir.load_json(database.workloads([costs[variant].workload])[costs[variant].workload]).attrs[
        SCHEDULES
    ]
    assert (tuning_folder(database) / "database_tuning_record.json").exists()

    locked = MeasuredCost(database, method=QUICK, locked=True)
    with target, locked.tuning(4) as tuning:
        tuning.tuned(question)
    empty = MeasuredCost(database, method=QUICK, locked=True, tuning_folder=tmp_path / "none")
    with target, empty.tuning(4) as tuning, pytest.raises(MissingCost, match="matmul has not been tuned"):
        tuning.tuned(question)


WEIGHTS = np.random.default_rng(0).integers(-128, 128, (16, 64), "int8")


def product_of_bytes() -> IRModule:
    """relu(x @ WEIGHTS.T) of bytes in TIR by hand, the weights in the order of VNNI: 16 columns, 4 places."""

    def packed(x: te.Tensor, weights: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, 64), name="k")

        def element(i: Any, j: Any) -> Any:
            return te.sum(
                x[i, k].astype("int32") * weights[j // 16, k // 4, j % 16, k % 4].astype("int32"), axis=k
            )

        return te.compute((32, 16), element, name="product")

    x = relax.Var("x", relax.TensorType((32, 64), "uint8"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            weights = relax.const(np.ascontiguousarray(WEIGHTS.reshape(1, 16, 16, 4).transpose(0, 2, 1, 3)))
            product = builder.emit_te(packed, x, weights)
            result = builder.emit_output(R.nn.relu(R.astype(product, "float32")))
        builder.emit_func_output(result)
    return builder.get()


@without_meta_schedule
def test_tvm_tensorizes_kernels_behind_our_passes(tmp_path: Path) -> None:
    with uc.host_target() as target:
        if not tvm.get_global_func("target.target_has_feature")("avx512vnni", target):
            pytest.skip("the processor has no VNNI")
        costed = EstimateCosts(FixedCost({"tvm": 1e-6}))(AnnotateCandidates(("tvm",))(product_of_bytes()))
        partitioned = SearchPartition()(costed)
        (kernel,) = kernels(FuseRemaining(schedule=False)(partitioned))
        with Tuner(tmp_path, 4) as search:
            tuned = search.tuned(kernel, target)
        assert tuned.trace, "no schedule ran"
        mod = FuseRemaining()(partitioned.with_attr(SCHEDULES, {tuned.kernel: tuned.trace}))
        executable = relax.build(mod, target)
    assert "llvm.x86.avx512.vpdpbusd.512" in mod.script()
    x = np.random.default_rng(1).integers(0, 256, (32, 64), "uint8")
    got = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(got, np.maximum(x.astype("int32") @ WEIGHTS.T.astype("int32"), 0))
