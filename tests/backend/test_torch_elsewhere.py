"""Operators of PyTorch without a converter: PyTorch computes them when the program runs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import unity_collage as uc
from unity_collage.errors import CollageError, ModelError
from unity_collage.lowering import library_file
from unity_collage.lowering.seal import facts_in

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch.utils import _pytree as pytree  # noqa: E402

_OPERATORS = torch.library.Library("collage_tests", "DEF")
_SEEN: list[Any] = []
"""What the operators below have noted when they ran."""


def _operator(schema: str, function: Any, fake: Any) -> None:
    name = schema.partition("(")[0]
    _OPERATORS.define(schema, tags=())
    _OPERATORS.impl(name, function, "CPU")
    torch.library.register_fake(f"collage_tests::{name}", fake, lib=_OPERATORS)


def _joined(parts: Any, by: Any, flag: Any = None) -> Any:
    """Several results in a list, one of them of booleans."""
    _SEEN.append((by, flag, torch.get_num_threads()))
    whole = torch.cat(list(parts))
    return [whole * by, whole > 0, whole.argsort()]


_operator(
    "joined(Tensor[] parts, float by, *, Tensor? flag=None) -> Tensor[]",
    _joined,
    lambda parts, by, flag=None: [
        torch.cat(list(parts)),
        torch.cat(list(parts)).bool(),
        torch.cat(list(parts)).long(),
    ],
)
_operator("same(Tensor x) -> Tensor", lambda x: x, torch.empty_like)
_operator("product(Tensor x) -> Tensor", lambda x: x @ x.T, lambda x: x @ x.T)
_operator("longer(Tensor x) -> Tensor", lambda x: torch.cat([x, x]), torch.empty_like)


class Computes(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: Any) -> Any:
        return self._function(*inputs)


def program_of(function: Any, *inputs: torch.Tensor, **options: Any) -> uc.Program:
    return uc.compile(Computes(function), inputs, measure=False, **options)


def agrees(program: uc.Program, function: Any, *inputs: torch.Tensor) -> None:
    found = program(*inputs)
    found = [found] if hasattr(found, "shape") else list(found)
    wanted = [leaf for leaf in pytree.tree_leaves(function(*inputs)) if isinstance(leaf, torch.Tensor)]
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.from_dlpack(ours), theirs, rtol=1e-4, atol=1e-5)


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def opaque(program: uc.Program) -> list[str]:
    assert program.plan is not None
    return [line for line in program.plan["main"].remarks if line.startswith("PyTorch computes")]


def test_operators_without_a_converter_have_the_numbers_of_torch() -> None:
    def many(x: torch.Tensor, halves: torch.Tensor) -> Any:
        matrix = x @ x.T + 4 * torch.eye(6)
        turns = torch.polar(torch.ones(4), torch.arange(4.0))
        turned = torch.view_as_complex(x.reshape(6, 4, 2)) * turns
        return {
            "with integers": torch.mode(x),
            "several results": torch.linalg.qr(matrix),
            "checked": torch.relu(torch.linalg.solve(matrix, x)),
            "numbers": torch.histc(x, 10, -3.0, float(3)),
            "through complex numbers": torch.fft.irfft(torch.fft.rfft(x) * 2, n=8),
            "complex constants": torch.view_as_real(turned),
            "sixteen bits": torch.lgamma(halves.abs() + 1),
            "a refused part": torch.nn.functional.max_pool1d(x[None], 2, return_indices=True),
            "no elements": torch.erfinv(x[:0]),
            "no axes": torch.erfinv(x.sum().sin()),
        }

    inputs = (draw(6, 8), draw(3).bfloat16())
    program = program_of(many, *inputs)
    agrees(program, many, *inputs)
    told = opaque(program)
    assert "PyTorch computes aten.mode.default (mode), on one thread: there is no converter for it" in told
    assert any("aten.mul.Tensor" in line and "complex numbers" in line for line in told)
    assert any("its result 1 is not supported" in line for line in told)


def test_lists_options_and_booleans_reach_an_operator_of_somebody_else() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        first, second, third = torch.ops.collage_tests.joined([x + x, y], float("inf"))
        return second, third, first.isinf(), torch.ops.collage_tests.joined([y], 2.0, flag=x)[0] + 1

    inputs, threads = (draw(5), draw(3)), torch.get_num_threads()
    program = program_of(function, *inputs)
    wanted = [leaf.clone() for leaf in function(*inputs)]
    torch.set_num_threads(2)
    _SEEN.clear()
    try:
        for ours, theirs in zip(program(*inputs), wanted, strict=True):
            torch.testing.assert_close(torch.from_dlpack(ours), theirs)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert sorted((by, flag is None, count) for by, flag, count in _SEEN) == [
        (2.0, False, 1),
        (float("inf"), True, 1),
    ]


def test_autocast_of_the_caller_changes_nothing() -> None:
    program = program_of(torch.ops.collage_tests.product, draw(5, 4))
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.from_dlpack(program(draw(5, 4)))
    torch.testing.assert_close(found, draw(5, 4) @ draw(5, 4).T)


def test_sizes_may_be_open() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.special.erfcx(x @ x.T).sum(0) + torch.lgamma(x.abs() + 1).reshape(x.shape[0], -1).sum(1)

    rows = torch.export.Dim("rows", min=2, max=64)
    exported = torch.export.export(Computes(function), (draw(4, 3),), dynamic_shapes={"inputs": ({0: rows},)})
    program = uc.compile(exported, measure=False)
    for size in (2, 9):
        agrees(program, function, draw(size, 3))


def test_an_open_size_is_an_argument() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(x, n=2 * x.shape[0] + 1, dim=0).real.cos()

    rows = torch.export.Dim("rows", min=2, max=64)
    exported = torch.export.export(Computes(function), (draw(4, 3),), dynamic_shapes={"inputs": ({0: rows},)})
    program = uc.compile(exported, measure=False)
    for size in (2, 5):
        agrees(program, function, draw(size, 3))


def test_sizes_may_depend_on_the_data() -> None:
    def function(x: torch.Tensor, weight: torch.Tensor) -> Any:
        kept = torch.nonzero(x[:, 0] > 0)[:, 0]
        return x[kept] @ weight, torch.unique(kept // 2)

    program = program_of(function, draw(10, 4), draw(4, 2))
    for sign in (1, -1):
        agrees(program, function, sign * draw(10, 4), draw(4, 2))


def test_a_result_may_be_empty() -> None:
    program = program_of(lambda x: torch.nonzero(x) + 1, draw(3, 4))
    agrees(program, lambda x: torch.nonzero(x) + 1, draw(3, 4))
    agrees(program, lambda x: torch.nonzero(x) + 1, torch.zeros(3, 4))


def test_a_result_that_is_an_operand_is_copied() -> None:
    """The memory of an operand is used again by the next kernels."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.collage_tests.same(torch.exp(x)) - x @ x @ x

    program = program_of(function, draw(64, 64))
    assert len(opaque(program)) == 1
    found = torch.from_dlpack(program(draw(64, 64)))
    x = draw(64, 64)
    torch.testing.assert_close(found, torch.exp(x) - x @ x @ x, rtol=1e-3, atol=1e-2)


def test_another_shape_than_was_told_is_an_error() -> None:
    program = program_of(lambda x: torch.ops.collage_tests.longer(x) + 1, draw(4))
    with pytest.raises(CollageError, match="match"):
        program(draw(4))


def test_an_error_of_torch_is_the_reason() -> None:
    program = program_of(torch.linalg.cholesky, torch.eye(3))
    with pytest.raises(CollageError, match="not positive-definite"):
        program(-torch.eye(3))


def test_among_named_backends_it_has_to_be_named() -> None:
    with pytest.raises(
        ModelError, match=r"aten\.erfinv\.default \(node erfinv\): there is no converter for it"
    ):
        program_of(torch.erfinv, draw(3), backends=["tvm"])
    for named in (["torch"], ["tvm", "torch"]):
        assert opaque(program_of(torch.erfinv, draw(3), backends=named))


def test_random_results_are_refused() -> None:
    with pytest.raises(
        ModelError, match=r"rand_like.*PyTorch cannot be called for it: its results are random"
    ):
        program_of(lambda x: x + torch.rand_like(x), draw(3))


def test_quantised_numbers_of_torch_are_refused() -> None:
    with pytest.raises(ModelError, match="it makes a tensor of quantised numbers, which only PyTorch has"):
        program_of(lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).dequantize(), draw(3))


def test_a_complex_result_is_refused_with_what_to_do() -> None:
    with pytest.raises(ModelError, match=r"return torch\.view_as_real of it"):
        program_of(torch.fft.fft, draw(4))


def test_a_saved_program_says_that_it_needs_torch(tmp_path) -> None:
    path, x = tmp_path / "program.so", draw(3, 4)
    program = program_of(lambda x: torch.lgamma(torch.exp(x)), x)
    program.save(path)
    with library_file.opened(path) as file:
        facts = facts_in(file)
    assert facts["torch"] == ["aten.lgamma.default"] and facts["wheels"]["torch"] == torch.__version__
    with pytest.raises(CollageError, match=r"without Python.*calls PyTorch: aten\.lgamma\.default"):
        program.save(tmp_path / "bundle", bundle=True)
    np.savez(tmp_path / "x.npz", x=x.numpy(), y=torch.lgamma(torch.exp(x)).numpy())
    script = f"""
import sys, numpy as np, unity_collage as uc
from unity_collage.runtime import torch_calls
program, stored = uc.load({str(path)!r}), np.load({str(tmp_path / "x.npz")!r})
assert "torch" not in sys.modules
np.testing.assert_allclose(program(stored["x"]).numpy(), stored["y"], rtol=1e-5)
torch_calls.find_spec = lambda name: None
try:
    uc.load({str(path)!r})
except uc.CollageError as error:
    assert str(error).endswith("it calls PyTorch for aten.lgamma.default: pip install torch"), error
else:
    raise AssertionError("it was loaded")
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_operator_that_is_not_registered_is_named(tmp_path) -> None:
    path = tmp_path / "program.so"
    program_of(lambda x: torch.ops.collage_tests.same(x) + 1, draw(3)).save(path)
    script = f"""
import numpy as np, unity_collage as uc
try:
    uc.load({str(path)!r})(np.zeros(3, np.float32))
except uc.CollageError as error:
    assert "PyTorch has no operator collage_tests.same.default in this process" in str(error), error
else:
    raise AssertionError("it has run")
"""
    subprocess.run([sys.executable, "-c", script], check=True)
