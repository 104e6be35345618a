"""Modules of PyTorch as programs: the numbers of eager, and one line where there is no program."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import LIBRARIES_FIRST, backends_of

import unity_collage as uc
from unity_collage.errors import CollageError, ModelError
from unity_collage.frontend.models import import_model
from unity_collage.testing.fixed_cost import FixedCost

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


class Recurrent(nn.Module):
    """The label of the last step, and the last states."""

    def __init__(self, kind: type, **options: Any) -> None:
        super().__init__()
        self.steps = kind(6, 8, **options)
        self.label = nn.Linear(8 * (2 if options.get("bidirectional") else 1), 3)

    def forward(self, x: torch.Tensor, initial: Any = None) -> Any:
        states, last = self.steps(x, initial)
        return self.label(states[:, -1]), last


class Decoder(nn.Module):
    """One step with a cache of keys and values, which grows by one row."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, past: dict[str, torch.Tensor]) -> dict[str, Any]:
        query, key, value = self.project(x).view(1, 1, 3, 2, 8).permute(2, 0, 3, 1, 4)
        key, value = torch.cat([past["key"], key], 2), torch.cat([past["value"], value], 2)
        found = F.scaled_dot_product_attention(query, key, value).transpose(1, 2)
        return {"y": self.out(found.reshape(1, 1, 16)), "past": (key, value), "nothing": None}


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 5)
    )  # fmt: skip


STEPS = draw(3, 5, 6)
PAST = {"key": draw(1, 2, 4, 8), "value": draw(1, 2, 4, 8)}

MODULES = {
    "convolutions": (convolutions, (draw(2, 3, 8, 8),)),
    "perceptron": (perceptron, (draw(3, 6),)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (draw(2, 5, 16),)),
    "LSTM": (lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True, batch_first=True), (STEPS,)),
    "LSTM with states": (
        lambda: Recurrent(nn.LSTM, batch_first=True, bias=False), (STEPS, (draw(1, 3, 8), draw(1, 3, 8)))),
    "GRU": (lambda: Recurrent(nn.GRU, batch_first=True), (STEPS,)),
    "GRU both ways": (
        lambda: Recurrent(nn.GRU, num_layers=2, bidirectional=True, batch_first=True), (STEPS, draw(4, 3, 8))),
    "RNN": (lambda: Recurrent(nn.RNN, num_layers=2), (STEPS,)),
    "LSTM with projections": (
        lambda: nn.LSTM(6, 8, num_layers=2, bidirectional=True, proj_size=3), (draw(5, 2, 6),)),
    "LSTM with projected states": (
        lambda: nn.LSTM(6, 8, bidirectional=True, bias=False, proj_size=3),
        (draw(5, 2, 6), (draw(2, 2, 3), draw(2, 2, 8)))),
    "RNN with ReLU": (lambda: Recurrent(nn.RNN, nonlinearity="relu", bias=False), (STEPS,)),
    "decoder step": (Decoder, (draw(1, 1, 16), PAST)),
}  # fmt: skip


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def program_of(module: Any, inputs: Any) -> uc.Program:
    return uc.compile(module, inputs, estimator=LIBRARIES_FIRST)


def agrees(program: uc.Program, given: Any, wanted: Any) -> None:
    found = program(*(tensor.numpy() for tensor in tensors(given)))
    found = [found] if hasattr(found, "numpy") else list(found)
    for ours, theirs in zip(found, tensors(wanted), strict=True):
        assert (ours.numpy().shape, ours.numpy().dtype) == (theirs.numpy().shape, theirs.numpy().dtype)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_has_the_numbers_of_eager(name: str) -> None:
    torch.manual_seed(0)
    make, inputs = MODULES[name]
    module = make()
    program = program_of(module, inputs)
    with torch.no_grad():
        agrees(program, inputs, module.eval()(*inputs))


@pytest.mark.parametrize("name", ["LSTM", "GRU both ways", "RNN"])
def test_a_recurrent_layer_is_not_unrolled(name: str) -> None:
    make, inputs = MODULES[name]
    text = import_model(make(), inputs).mod.script()
    assert text.count("R.collage.") == {"LSTM": 4, "GRU both ways": 4, "RNN": 2}[name]


@pytest.mark.parametrize("name", ["graph", "_code", "meta"])
def test_a_part_may_be_called_as_something_that_torch_uses_itself(name: str) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module(name, nn.Linear(3, 2))

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return torch.where(image.sum() > 0, torch.tensor(1.0), getattr(self, name)(image))

    module, x = Named(), draw(2, 3)
    program = uc.compile(module, (x,), estimator=LIBRARIES_FIRST)
    assert program.input_names == ("image",)
    torch.testing.assert_close(torch.from_dlpack(program(x)), module(x).detach(), rtol=1e-4, atol=1e-5)


def test_inputs_have_the_names_of_arguments() -> None:
    assert import_model(Decoder(), (draw(1, 1, 16), PAST)).inputs == ("x", "past_key", "past_value")


def test_arguments_may_have_names() -> None:
    module, x = Recurrent(nn.GRU).eval(), draw(3, 5, 6)
    for given in ({"x": x, "initial": None}, (x, {"initial": None}), x):
        assert import_model(module, given).inputs == ("x",)


def test_a_module_is_as_it_was_before() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    module[0].eval()
    text = import_model(module, (draw(2, 3),)).mod.script()
    assert (module.training, module[0].training, module[1].training) == (True, False, True)
    assert "R.matmul" in text and "dropout" not in text


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.out.weight = self.table.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(self.table(words))


def test_tied_weights_are_one_constant_in_each_order() -> None:
    from tvm import ir, relax

    found = []
    main = import_model(Tied(), (torch.tensor([1, 2]),)).mod["main"]
    relax.analysis.post_order_visit(
        main, lambda e: found.append(e) if isinstance(e, ir.GenericConst) else None
    )
    shapes = {constant.value.__hash__(): tuple(constant.value.shape) for constant in found}
    rows, columns = Tied().table.weight.shape
    assert sorted(shapes.values()) == sorted([(rows, columns), (columns, rows)])


@dataclass
class Answer:
    score: torch.Tensor
    rest: torch.Tensor


class Answering(nn.Module):
    def forward(self, x: torch.Tensor) -> Answer:
        return Answer(x + 1, rest=x * 2)


def test_fields_of_a_dataclass_are_results() -> None:
    x = draw(2, 3)
    agrees(program_of(Answering(), (x,)), (x,), (x + 1, x * 2))


class Summing(nn.Module):
    def forward(self, parts: list[torch.Tensor], scale: float) -> tuple[torch.Tensor, None, int]:
        return parts[0] * scale + parts[1], None, parts[0].shape[0]


def test_lists_are_taken_and_numbers_are_constants(caplog: pytest.LogCaptureFixture) -> None:
    parts = [draw(2), draw(2)]
    with caplog.at_level(logging.WARNING):
        program = program_of(Summing(), (parts, 2.5))
    assert "does not return the module's result 2" in caplog.text and "None" not in caplog.text
    for args in ((parts,), tuple(parts)):
        agrees(program, args, (parts[0] * 2.5 + parts[1],))
    with pytest.raises(CollageError, match="1 inputs given; the model takes 2: 'parts_0', 'parts_1'"):
        program([parts[0]])


class Counter(nn.Module):
    """Its results depend on how often it has run, or not."""

    def __init__(self, shows: bool) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.shows = shows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x + self.count if self.shows else x * 2


class Stepping(nn.Module):
    """Its parameter is larger in each run."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.step.add_(1)
        return x * self.step


def test_a_parameter_that_is_changed_is_refused() -> None:
    with pytest.raises(ModelError, match="it changes its parameter step, and its results depend on that"):
        import_model(Stepping(), (draw(2),))


def test_a_buffer_that_is_changed_and_shown_is_refused() -> None:
    with pytest.raises(ModelError, match="it changes its buffer count, and its results depend on that"):
        import_model(Counter(True), (draw(2),))
    agrees(program_of(Counter(False), (draw(2),)), (draw(2),), draw(2) * 2)


class Silent(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = x.abs().amax()
        return x / scale + torch.arange(x.shape[1])


def test_a_part_without_gradients_is_part_of_the_program() -> None:
    x = draw(2, 3)
    agrees(program_of(Silent(), (x,)), (x,), Silent()(x))


class Prefixed(nn.Module):
    """A size that torch.export sees as computed, and that is a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, self.count :].sum(1) * 2


def test_a_size_that_is_computed_from_constants_is_known() -> None:
    x = draw(2, 5)
    agrees(program_of(Prefixed(), (x,)), (x,), x[:, 2:].sum(1) * 2)


def test_an_exported_program_and_its_file_are_models(tmp_path: Path) -> None:
    module, x = perceptron().eval(), draw(3, 6)
    exported = torch.export.export(module, (x,))
    torch.export.save(exported, tmp_path / "model.pt2")
    for model in (exported, tmp_path / "model.pt2"):
        with torch.no_grad():
            agrees(uc.compile(model, estimator=LIBRARIES_FIRST), (x,), module(x))


def test_sizes_may_be_open_until_the_import() -> None:
    module = perceptron().eval()
    open_rows = torch.export.export(module, (draw(3, 6),), dynamic_shapes=({0: torch.export.Dim("rows")},))
    main = import_model(open_rows).mod["main"]
    assert str(main.params[0].ty.shape.values[0]) == str(main.ret_ty.shape.values[0])
    assert not str(main.params[0].ty.shape.values[0]).isdecimal()


def test_a_recurrent_layer_of_a_free_batch() -> None:
    """torch.export fixes the number of steps."""
    module = Recurrent(nn.LSTM, bidirectional=True, batch_first=True).eval()
    free = {"x": {0: torch.export.Dim("n")}, "initial": None}
    exported = torch.export.export(module, (STEPS, None), dynamic_shapes=free)
    mod = import_model(exported).mod
    assert mod.script().count("R.collage.lstm") == 2
    one_plan = {str(mod["main"].params[0].ty.shape.values[0]): []}
    cost = FixedCost({"kernels": 1e-6, "onednn": 2e-6, "openblas": 3e-6, "tvm": 4e-6})
    program = uc.compile(exported, shapes=one_plan, estimator=cost)
    assert "kernels" in backends_of(program)
    for batch in (1, 2, 3, 9):
        x = draw(batch, 5, 6)
        with torch.no_grad():
            agrees(program, (x,), module(x))


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._function(*inputs)


REFUSALS = {
    "random": (
        lambda x: x + torch.rand_like(x),
        "aten.rand_like.default (node rand_like): its results are random",
    ),
    "no converter": (lambda x: torch.linalg.qr(x)[0], "there is no converter for it"),
    "values as a shape": (lambda x: x.nonzero(), "its result's shape depends on values"),
    "complex": (lambda x: torch.view_as_complex(x).abs(), "aten.view_as_complex.default"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_names_the_operator(name: str) -> None:
    function, reason = REFUSALS[name]
    with pytest.raises(ModelError) as raised:
        import_model(Of(function), (draw(3, 2),))
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


class Branching(nn.Module):
    """A condition on values; one of its branches has another inside."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0]

        def positive(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.one(x).relu(), y * 2

        def negative(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            far = torch.cond(y.amax() > 0.5, lambda z: z + 1, lambda z: z.clone(), (y,))
            return self.other(x) - x.reshape(rows, 2, 4).flip(1).reshape(rows, 8), far

        a, b = torch.cond((x.sum() > 0).reshape(1), positive, negative, (x, x.cos()))
        return a + b


@pytest.mark.parametrize("is_free", [False, True])
def test_a_branch_is_taken_when_the_program_runs(is_free: bool) -> None:
    module = Branching().eval()
    free = {"x": {0: torch.export.Dim("rows", min=2, max=64)}} if is_free else None
    program = program_of(torch.export.export(module, (draw(3, 8),), dynamic_shapes=free), None)
    for x in (
        torch.ones(3, 8),
        -torch.ones(3, 8),
        -2 * torch.ones(3, 8),
        *([torch.ones(7, 8)] if is_free else []),
    ):
        with torch.no_grad():
            agrees(program, x, module(x))


class Counting(nn.Module):
    """Sizes as numbers: a mean, a shift, a scale of integers, and a comparison."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows, places = x.shape[0], torch.arange(8)
        return x.sum(0) / rows, x + rows, places * rows, places < rows


def test_a_size_is_a_number_in_arithmetic_on_tensors() -> None:
    free = {"x": {0: torch.export.Dim("rows", min=2, max=64)}}
    program = program_of(torch.export.export(Counting(), (draw(3, 8),), dynamic_shapes=free), None)
    for rows in (3, 7, 2):
        agrees(program, draw(rows, 8), Counting()(draw(rows, 8)))


class KnownBranch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(torch.tensor(True), lambda x: x + 1, lambda x: x - 1, (x,))


def test_a_branch_whose_condition_is_known_is_taken_at_the_import() -> None:
    mod = import_model(KnownBranch(), (draw(2, 3),)).mod
    assert [gvar.name_hint for gvar in mod.get_global_vars()] == ["main"] and "if" not in mod.script()
    agrees(program_of(KnownBranch(), (draw(2, 3),)), draw(2, 3), draw(2, 3) + 1)


class BySize(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.shape[0] > 4, lambda x: x + 1, lambda x: x - 1, (x,))


def test_a_branch_by_size_is_refused() -> None:
    free = {"x": {0: torch.export.Dim("rows", min=2, max=64)}}
    with pytest.raises(ModelError, match="its condition depends on sizes: fix them"):
        import_model(torch.export.export(BySize(), (draw(3, 8),), dynamic_shapes=free))


def test_a_module_needs_inputs() -> None:
    with pytest.raises(ModelError, match=r"needs example inputs: compile\(module, \(tensor, ...\)\)"):
        import_model(nn.Linear(2, 2))


def test_the_error_of_a_module_is_the_reason() -> None:
    with pytest.raises(
        ModelError, match=r"torch.export cannot take this module: RuntimeError: .*reduction dim"
    ):
        import_model(nn.Linear(3, 2), (draw(2, 5),))


def test_nothing_of_ours_needs_torch_unasked() -> None:
    """TVM's FFI imports it where it is installed, so it is hidden here."""
    code = (
        "import sys; sys.modules['torch'] = None; import unity_collage as uc; uc.compile; "
        "import unity_collage.frontend.models, unity_collage.cli.main, unity_collage.frontend.pytorch"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_pool_of_torch_is_told() -> None:
    code = (
        "import torch; from unity_collage import runtime; torch.set_num_threads(2); runtime.set_num_threads(2)\n"
        "assert 'torch.set_num_threads(1)' in runtime.why_torch_competes()\n"
        "torch.set_num_threads(1); assert runtime.why_torch_competes() is None"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_torch_compile_runs_our_programs(caplog: pytest.LogCaptureFixture) -> None:
    module, x = convolutions().eval(), draw(2, 3, 8, 8)
    options = {"fallback": False, "estimator": LIBRARIES_FIRST}
    compiled = torch.compile(module, backend="unity_collage", options=options)
    with torch.no_grad():
        for given in (x, torch.cat([x, x])):
            torch.testing.assert_close(compiled(given), module(given), rtol=1e-4, atol=1e-5)
    assert not [record for record in caplog.records if record.name.startswith("unity_collage")]


@pytest.mark.skipif(
    not entry_points(group="tvm.backends", name="unity_collage"), reason="the package is not installed"
)
def test_tvms_own_backend_of_torch_takes_our_pipeline_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline finds its target without a scope, and TVM's default pipeline runs behind it."""
    from tvm.relax.frontend.torch import relax_dynamo

    monkeypatch.setattr("unity_collage.pipeline.costs_for", lambda _target: LIBRARIES_FIRST)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 4)
    ).eval()
    x = draw(1, 3, 8, 8)
    torch._dynamo.reset()
    with torch.no_grad():
        found, wanted = torch.compile(module, backend=relax_dynamo("collage"))(x), module(x)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (Counter(True), "it changes a weight, a buffer or an input"),
        (Of(lambda x: x + 1 + torch.rand_like(x) * 0), "its results are random"),
        (Of(lambda x: x.add_(1)), "it changes a weight, a buffer or an input"),
    ],
)
def test_torch_compile_falls_back_with_a_reason(
    module: nn.Module, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    compiled = torch.compile(module, backend="unity_collage", options={"estimator": LIBRARIES_FIRST})
    with torch.no_grad():
        torch.testing.assert_close(compiled(draw(2)), draw(2) + 1)
    assert reason in caplog.text


def test_gradients_are_left_to_torch(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torch.compile(nn.Linear(3, 2), backend="unity_collage")
    assert compiled(draw(2, 3)).requires_grad
    assert "call the module inside torch.no_grad()" in caplog.text


def test_images_of_any_size_are_pooled() -> None:
    """Pads of a mean count, or they do not."""

    class Pooled(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            largest = F.max_pool2d(x, 3, 2, 1)
            padded = F.avg_pool2d(largest, 3, 2, 1)
            return F.avg_pool2d(largest, 2), padded, F.avg_pool2d(largest, 3, 2, 1, count_include_pad=False)

    module = Pooled()
    sizes = {2: torch.export.Dim("height", min=8), 3: torch.export.Dim("width", min=8)}
    exported = torch.export.export(module, (draw(1, 3, 16, 16),), dynamic_shapes=(sizes,))
    program = uc.compile(exported, measure=False)
    for height, width in ((16, 16), (33, 20), (9, 47)):
        x = draw(1, 3, height, width)
        for got, right in zip(program(x), module(x), strict=True):
            np.testing.assert_allclose(got.numpy(), right.numpy(), rtol=1e-5, atol=1e-6)
