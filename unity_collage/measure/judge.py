"""Which kernels for one computation are right: each runs on two sets of inputs, against a reference or by vote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from .. import reference
from ..annotations import LIFTED
from ..database.rows import FailureKind
from ..graph.calls import op_name, operators
from ..graph.extract import prim_funcs_of
from ..graph.shapes import dtype_of
from ..reference.quantization import ties_moved
from .compare import Outputs, elected, why_wrong
from .inputs import edge_inputs, random_inputs
from .kernels import unscheduled_outputs
from .refusal import Refusal, Refused, refusal_of
from .tolerance import NARROW, tolerances

TRUSTED = "TVM's unscheduled kernel"

_WITHOUT_NAN = frozenset(
    {
        "call_tir",
        "matmul",
        "nn.attention",
        *(f"nn.conv{n}d{end}" for n in (1, 2, 3) for end in ("", "_transpose")),
    }
)
_ASKING_FOR_INFINITY = frozenset({"relax.isinf", "relax.isfinite"})
_ASKING = _ASKING_FOR_INFINITY | {"relax.isnan"}
_FEW = 7
"""About how many NaN are among the inputs of a trial."""


@dataclass(frozen=True)
class Trial:
    """One set of inputs and the expected outputs; None: numpy cannot compute them."""

    inputs: list[np.ndarray]
    expected: list[np.ndarray] | None
    slack: list[np.ndarray] | None = None
    """How much each output changes if no operator rounds to a narrow type: kernels may keep inner values in float32.
    Or how much it changes if what is quantised is off by a rounding error."""


def trials(func: relax.Function) -> list[Trial]:
    """Random inputs and edge values, each with the outputs that numpy computes.

    Activations are smaller than usual where most outputs would be infinite or NaN, which show little.
    """
    random = random_inputs(func)
    edges = edge_inputs(func, constants=random[len(random) - int(func.attrs[LIFTED]) :])
    return [_telling_trial(func, arrays) for arrays in (random, edges)]


_SMALLER = (1.0, 1 / 16, 1 / 256)
"""By what activations are multiplied until at least half of the outputs are finite."""


def _telling_trial(func: relax.Function, arrays: list[np.ndarray]) -> Trial:
    """The first trial of which at least half of the outputs are finite, or else the one with these inputs."""
    made = (trial_of(func, _scaled(func, arrays, factor)) for factor in _SMALLER)
    first = next(made)
    if _is_telling(first):
        return first
    return next(filter(_is_telling, made), first)


def _scaled(func: relax.Function, arrays: list[np.ndarray], factor: float) -> list[np.ndarray]:
    """The arrays with the activations that are floats multiplied by ``factor``."""
    if factor == 1.0:
        return arrays
    activations = len(arrays) - int(func.attrs[LIFTED])
    return [
        (array * factor).astype(array.dtype) if number < activations and _is_float(array) else array
        for number, array in enumerate(arrays)
    ]


def _is_float(array: np.ndarray) -> bool:
    return "float" in array.dtype.name  # numpy does not count bfloat16 among its floats


def _is_telling(trial: Trial) -> bool:
    if trial.expected is None:
        return True
    finite = sum(int(np.isfinite(each).sum()) for each in trial.expected)
    return 2 * finite >= sum(each.size for each in trial.expected)


def trial_of(func: relax.Function, arrays: list[np.ndarray]) -> Trial:
    """A trial with these inputs and the outputs that numpy computes."""
    expected = _expected(func, arrays)
    if expected is not None and "relax.quantize" in operators(func):
        return Trial(arrays, expected, _steps_apart(func, arrays, expected))
    if expected is None or not _magnifies_rounding(func):
        return Trial(arrays, expected)
    wide = _expected(func, arrays, rounds=False)
    assert wide is not None
    with np.errstate(invalid="ignore"):  # infinity less infinity
        apart = [np.abs(a.astype(np.float64) - b) for a, b in zip(expected, wide, strict=True)]
    return Trial(arrays, expected, [np.nan_to_num(each, posinf=0.0) for each in apart])


def _steps_apart(
    func: relax.Function, arrays: list[np.ndarray], expected: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """How much each output changes where a quantised number is nearly half a step from two integers."""
    slack = [np.zeros(each.shape) for each in expected]
    for direction in (-1.0, 1.0):
        with ties_moved(direction):
            moved = _expected(func, arrays)
        assert moved is not None
        with np.errstate(invalid="ignore"):
            apart = [
                np.abs(a.astype(np.float64) - b.astype(np.float64))
                for a, b in zip(moved, expected, strict=True)
            ]
        slack = [np.maximum(s, np.nan_to_num(a, posinf=0.0)) for s, a in zip(slack, apart, strict=True)]
    return slack


_STEEP = frozenset({"relax.nn.softmax", "relax.nn.log_softmax", "relax.exp", "relax.power"})
"""Operators that turn a relative rounding error of an operand into an error that grows with the operand's magnitude."""


def _magnifies_rounding(func: relax.Function) -> bool:
    """Whether an exponential inside ``func`` reads what an operator has rounded to a type of 16 bits.

    A score of 50 in float16 is off by up to 0.016, and so is the logarithm of its exponential.
    """
    computed: set[relax.Var] = set()
    for block in func.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if not isinstance(call, relax.Call):
                continue
            read = {
                arg
                for each in call.args
                for arg in (each.fields if isinstance(each, relax.Tuple) else [each])
            }
            if op_name(call) in _STEEP and computed & read:
                return True
            is_narrow = isinstance(call.ty, relax.TensorType) and dtype_of(call) in NARROW
            if is_narrow or computed & read:
                computed.add(binding.var)
    return False


Run = Callable[
    [Any, Sequence[np.ndarray], Sequence[tvm.runtime.Tensor], relax.Function, bool], list[np.ndarray]
]
"""Runs a kernel on inputs and constants, as :func:`.guard.outputs_of` does."""


def asks_for_nan(func: relax.Function) -> bool:
    """Whether ``func`` asks which numbers are NaN or infinite."""
    return bool(operators(func) & _ASKING)


def nan_trial(func: relax.Function) -> Trial | None:
    """Random inputs with a few NaN, and what numpy computes; None for products, for integers, and where numpy cannot.

    A function that asks for NaN has some in all inputs, and one that asks for infinity also has infinite ones.

    Behind products and convolutions libraries take ReLU and clip, which turn NaN into the lower bound: a kernel of its
    own would cost too much. PrimFuncs have no trial either: the result of a maximum in TIR is undefined for NaN.
    """
    arrays = random_inputs(func)
    count = len(arrays) - int(func.attrs[LIFTED])
    floats = [i for i, array in enumerate(arrays[:count]) if _is_float(array)]
    if not floats or any(name.partition(".")[2] in _WITHOUT_NAN for name in operators(func)):
        return None
    asks_for_infinity = bool(operators(func) & _ASKING_FOR_INFINITY)
    for number in floats if asks_for_nan(func) else floats[:1]:
        arrays[number] = _poisoned(arrays[number], asks_for_infinity)
    expected = _expected(func, arrays)
    return None if expected is None else Trial(arrays, expected)


def _poisoned(array: np.ndarray, with_infinity: bool) -> np.ndarray:
    poisoned = array.copy()
    places = poisoned.reshape(-1)[:: max(1, poisoned.size // _FEW)]
    places[...] = np.resize([np.nan, np.inf, -np.inf] if with_infinity else [np.nan], places.size)
    return poisoned


def why_not_with_nan(func: relax.Function, trial: Trial, got: Outputs) -> Refusal | None:
    """Why outputs for a trial with NaN are wrong, or None.

    A function that asks for NaN has to compute what numpy does. Others may have NaN in more places.
    """
    assert trial.expected is not None
    if asks_for_nan(func):
        return why_not_expected(func, trial, got)
    return why_nan_is_lost(got, trial.expected)


def why_nan_is_lost(got: Outputs, expected: Outputs) -> Refusal | None:
    """Why outputs have numbers where they should have NaN, or other truth values, or None."""
    for number, (value, right) in enumerate(zip(got, expected, strict=True)):
        if right.dtype == np.bool_ and not np.array_equal(value, right):
            return Refusal(f"output {number} has another truth value for NaN", FailureKind.WRONG_NUMBERS)
        if np.any(np.isnan(right.astype(np.float64)) & ~np.isnan(value.astype(np.float64))):
            return Refusal(
                f"output {number} is a number where the reference is NaN", FailureKind.WRONG_NUMBERS
            )
    return None


def outputs_or_refusal(
    func: relax.Function, trials: list[Trial], kernel: Any, constants: list[tvm.runtime.Tensor], run: Run
) -> list[Outputs]:
    """The outputs of ``kernel`` for each trial; raises Refused when it writes outside or its numbers are wrong."""
    activations = len(func.params) - int(func.attrs[LIFTED])
    results: list[Outputs] = []
    for number, trial in enumerate(trials):
        try:
            got = run(kernel, trial.inputs[:activations], constants, func, number % 2 == 0)
        except Refused:
            raise
        except Exception as error:  # a foreign kernel failed: its error becomes the reason
            raise Refused(refusal_of(error, FailureKind.RUN_ERROR)) from error
        refusal = why_not_expected(func, trial, got)
        if refusal is not None:
            raise Refused(refusal)
        results.append(got)
    return results


def why_not_expected(func: relax.Function, trial: Trial, got: Outputs) -> Refusal | None:
    """Why outputs differ from those that numpy computes, or None; also None where numpy cannot compute them."""
    if trial.expected is None:
        return None
    return why_wrong(got, trial.expected, tolerances(func), trial.slack)


def outvoted(
    func: relax.Function, trials: list[Trial], results: Mapping[str, Sequence[Outputs]]
) -> dict[str, Refusal]:
    """The kernels in ``results`` (outputs by name) with which the others disagree, each with a refusal.

    Kernels vote only on trials without a reference. TVM's unscheduled kernel has a vote if it can be built.
    """
    allowed, refused = tolerances(func), dict[str, Refusal]()
    for number, trial in enumerate(trials):
        if trial.expected is not None:
            continue
        voters = {name: outputs[number] for name, outputs in results.items() if name not in refused}
        voters |= _trusted_vote(func, trial)
        winner = elected(voters, allowed, TRUSTED)
        for name in results.keys() & voters.keys():
            refusal = _UNCONFIRMED if winner is None else why_wrong(voters[name], voters[winner], allowed)
            if refusal is not None:
                refused[name] = refusal
    return refused


_UNCONFIRMED = Refusal(
    "its numbers cannot be checked: numpy cannot compute it, and there is no second kernel to compare with"
)


def _expected(
    func: relax.Function, arrays: list[np.ndarray], *, rounds: bool = True
) -> list[np.ndarray] | None:
    try:
        return reference.run(func.without_attr(LIFTED), arrays, prim_funcs_of(func), rounds=rounds)
    except reference.Unsupported:
        return None


def _trusted_vote(func: relax.Function, trial: Trial) -> dict[str, Outputs]:
    try:
        return {TRUSTED: unscheduled_outputs(func, trial.inputs)}
    except Exception:  # TVM cannot build it: the other kernels decide
        return {}
