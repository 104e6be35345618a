"""PyTorch as one of the programs for a model of PyTorch: its numbers, what it needs, and when it takes part."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unity_collage as uc
from unity_collage.errors import CollageError
from unity_collage.feedback import Refinement, comparison
from unity_collage.feedback.whole_models import eager_entrant
from unity_collage.frontend.eager import eager_module
from unity_collage.frontend.models import Imported, LastResorts, import_model
from unity_collage.keeping import digest_of_imported
from unity_collage.lowering.build import build
from unity_collage.runtime import torch_models

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

NAME = "torch, the whole model"
QUICK = Refinement(rounds=3, round_seconds=0.002, stock=False)

_OPERATORS = torch.library.Library("collage_eager", "DEF")
_SEEN: list[Any] = []
"""What the operator below has noted when it ran."""


def _noting(x: torch.Tensor) -> torch.Tensor:
    state = torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
    _SEEN.append((torch.get_num_threads(), *state))
    return x + 1


_OPERATORS.define("noting(Tensor x) -> Tensor", tags=())
_OPERATORS.impl("noting", _noting, "CPU")
torch.library.register_fake("collage_eager::noting", torch.empty_like, lib=_OPERATORS)


class Of(nn.Module):
    """A function as a module, with weights of its own."""

    def __init__(self, function: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)
        self.register_buffer("scale", torch.arange(4.0))

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


@dataclass
class Answer:
    score: torch.Tensor
    rest: list[torch.Tensor]


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def imported(model: Any, inputs: Any = None) -> Imported:
    return import_model(model, inputs, last_resorts=LastResorts(torch=True))


def program_of(model: Any, inputs: Any = None) -> uc.Program:
    """The program that calls PyTorch for all of a model."""
    source = imported(model, inputs)
    assert source.eager is not None
    mod = eager_module(source.eager, source.mod)
    return uc.Program(build(mod, uc.host_target()), source.inputs, mod)


def tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def agrees(program: uc.Program, given: Any, wanted: Any) -> None:
    found = program(*tensors(given))
    found = [found] if hasattr(found, "shape") else list(found)
    for ours, theirs in zip(found, tensors(wanted), strict=True):
        torch.testing.assert_close(torch.from_dlpack(ours), theirs.detach())


def _accumulated(_: Any, x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(4)
    total += x.sum(0)
    return total.relu_()


def _branched(_: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos() + 1, (x,))


CASES: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "in place": (lambda: Of(_accumulated), (draw(3, 4),)),
    "weights and views are results": (lambda: Of(lambda m, x: (m.scale, x.T, m.scale * x)), (draw(4, 4),)),
    "branches": (lambda: Of(_branched), (draw(3, 4),)),
    "lists and numbers": (
        lambda: Of(lambda m, p, by: (p[0] * by, None, p[1] > 0)),
        ([draw(2), draw(3)], 2.5),
    ),
    "fields": (lambda: Of(lambda m, x: Answer(x + 1, [x.long(), x.double()])), (draw(2, 3),)),
    "layers": (
        lambda: Of(
            lambda m, x: m.parts[1](m.parts[0](x).relu_())[0],
            nn.Linear(8, 6),
            nn.LSTM(6, 5, batch_first=True),
        ),
        (draw(2, 3, 8),),
    ),
    "no elements": (lambda: Of(lambda m, x: (x[:0], x.sum())), (draw(2, 3),)),
}


@pytest.mark.parametrize("name", CASES)
def test_it_has_the_numbers_of_the_module(name: str) -> None:
    make, inputs = CASES[name]
    module = make().eval()
    program = program_of(module, inputs)
    for _ in range(2):  # a run leaves nothing behind for the next one
        agrees(program, inputs, module(*inputs))


def test_a_result_does_not_share_memory_with_a_weight() -> None:
    make, inputs = CASES["weights and views are results"]
    program = program_of(make(), inputs)
    torch.from_dlpack(program(*inputs)[0]).fill_(7)
    agrees(program, inputs, make()(*inputs))


def test_a_later_change_of_the_module_does_not_reach_it() -> None:
    module = nn.Linear(4, 2).eval()
    program, wanted = program_of(module, (draw(3, 4),)), module(draw(3, 4))
    with torch.no_grad():
        module.weight.zero_()
    agrees(program, draw(3, 4), wanted)


def test_sizes_may_be_open_and_a_part_may_be_without_gradients() -> None:
    def function(_: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = x.abs().amax()
        return x.reshape(-1) / scale

    rows = torch.export.Dim("rows", min=2, max=64)
    exported = torch.export.export(Of(function), (draw(4, 3),), dynamic_shapes={"inputs": ({0: rows},)})
    program = program_of(exported)
    for size in (2, 5):
        agrees(program, draw(size, 3), function(None, draw(size, 3)))


def test_it_runs_as_eager_does_on_the_threads_of_kernels() -> None:
    program, before = (
        program_of(Of(lambda m, x: torch.ops.collage_eager.noting(x)), (draw(3),)),
        uc.num_threads(),
    )
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            uc.set_num_threads(count)
            with torch.autocast("cpu"):
                agrees(program, draw(3), draw(3) + 1)
    finally:
        uc.set_num_threads(before)
    assert _SEEN == [(1, True, False), (2, True, False)]
    assert torch.get_num_threads() == threads


def test_a_forked_process_does_not_wait_for_threads_of_its_parent() -> None:
    layers, before = nn.Sequential(nn.Linear(256, 256), nn.Tanh()).eval(), uc.num_threads()
    program, x = program_of(layers, (draw(256, 256),)), draw(256, 256)
    uc.set_num_threads(2)
    try:
        wanted = program(x).numpy()
        if (child := os.fork()) == 0:
            signal.alarm(30)  # ends a child that waits
            os._exit(0 if np.allclose(program(x).numpy(), wanted, atol=1e-5) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        uc.set_num_threads(before)


def test_a_process_keeps_the_last_models_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_models, "_models", ready := {})
    monkeypatch.setattr(torch_models, "_MOST_MODELS", 1)
    programs = {value: program_of(Of(lambda m, x, value=value: x + value), (draw(3),)) for value in (1, 2)}
    for value in (1, 2, 1):
        agrees(programs[value], draw(3), draw(3) + value)
        assert len(ready) == 1


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x * 2


def test_a_model_that_changes_a_buffer_takes_no_part() -> None:
    with pytest.raises(CollageError, match="it changes a weight, a buffer or an input"):
        program_of(Counter(), (draw(2),))


def test_sizes_that_depend_on_the_data_take_no_part() -> None:
    with pytest.raises(CollageError, match="the sizes of result 0 are known only when the model has run"):
        program_of(Of(lambda m, x: torch.nonzero(x)), (draw(2),))


def test_a_verdict_holds_for_these_operators_and_weights() -> None:
    """The operators may differ where the imported modules do not."""
    plain, other = (
        imported(Of(function), (draw(4),))
        for function in (lambda m, x: torch.relu(x) * m.scale, lambda m, x: x.clone().relu_() * m.scale)
    )
    assert digest_of_imported(None, plain) != digest_of_imported(None, other)
    bare = {digest_of_imported(None, replace(each, eager=None)) for each in (plain, other)}
    assert len(bare) == 1
    versions = {eager_entrant(each.eager, each.mod)[NAME].version for each in (plain, other)}
    assert len(versions) == 2 and all(text.startswith(f"PyTorch {torch.__version__} ") for text in versions)


def _as_if_it_were_the_fastest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(comparison, "HOPELESS", math.inf)
    patch.setattr(comparison.Comparison, "_sure", lambda _, medians: medians)
    patch.setattr(comparison, "winner_of", lambda medians, _: max(medians, key=lambda name: name == NAME))


def test_it_is_the_result_where_it_is_the_fastest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _as_if_it_were_the_fastest(monkeypatch)
    torch.manual_seed(0)
    options: dict[str, Any] = {"database": tmp_path / "costs.sqlite", "backends": ["tvm", "torch"]}
    x, path = draw(3, 8), tmp_path / "program.so"
    for number in range(2):  # the weights of the second module are others
        module = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval()
        program = uc.compile(module, (x,), refine=QUICK, **options)
        assert program.plan is not None
        plan = program.plan["main"]
        assert plan.comparison is not None
        assert (plan.comparison.winner, plan.comparison.origin) == (NAME, "measured"), number
        assert [(kernel.backend, kernel.label) for kernel in plan.kernels] == [("torch", "the whole model")]
        assert any(
            text.startswith(f"PyTorch {torch.__version__} computes the whole") for text in plan.remarks
        )
        agrees(program, x, module(x))
    known = uc.compile(module, (x,), refine=QUICK, locked=True, **options).plan["main"].comparison
    assert (known.winner, known.origin) == (NAME, "database")
    with pytest.raises(CollageError, match="without Python, and this program calls PyTorch: whole_model"):
        program.save(tmp_path / "bundle", bundle=True)
    program.save(path)
    np.savez(tmp_path / "values.npz", x=x.numpy(), y=module(x).detach().numpy())
    script = f"""
import sys, numpy as np, unity_collage as uc
program, stored = uc.load({str(path)!r}), np.load({str(tmp_path / "values.npz")!r})
assert "torch" not in sys.modules
np.testing.assert_allclose(program(stored["x"]).numpy(), stored["y"], rtol=1e-5)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("options", [{"backends": ["tvm"]}, {"backends": ["tvm", "torch"], "eager": False}])
def test_it_takes_no_part_unless_it_is_asked(options: dict[str, Any], tmp_path: Path) -> None:
    given: dict[str, Any] = {"database": tmp_path / "costs.sqlite", "refine": QUICK, **options}
    program = uc.compile(Of(lambda m, x: x * m.scale), (draw(3, 4),), **given)
    assert program.plan is not None and (report := program.plan["main"].comparison) is not None
    assert NAME not in {each.name for each in report.programs}
