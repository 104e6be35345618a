"""The settings and the result of a refinement."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tvm import relax
from tvm.ir import IRModule

from ..cost.method import MEDIAN
from ..plan.comparison import ProgramComparison
from .breeding import Breeding

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Refinement:
    """How candidate programs are compared, and how costs are corrected by running programs."""

    feedback: int = 2
    """The most times that the plan is searched again with costs from the running programs."""
    rounds: int = 7
    """How many rounds the last comparison of all programs has; fewer where one run of each takes seconds."""
    round_seconds: float = 0.3
    """The shortest time that each program runs in one round."""
    margin: float = 0.01
    """The part of our program's time that another program must save to be the result; a smaller difference is a tie."""
    tolerance: float = 1e-3
    """The largest difference of outputs between two programs, over their range; at least 5e-2 with bfloat16."""
    rounding_tolerance: float = 5e-2
    """The same for a runtime's program of the whole model, if rounded inputs change its outputs and ours as much."""
    breeding: Breeding | None = None
    """How to breed plans by measured time before the last rounds; None: no breeding."""
    stock: bool = True
    """Whether the program that TVM alone makes takes part."""
    hopeless: float = math.inf
    """A program is not built if its kernels cost this many times as much as those of our plan."""
    build_seconds: float = math.inf
    """The limit for building the programs other than ours."""
    percentile: float = MEDIAN
    """Which percentile of a program's runs is compared."""
    is_optional: bool = False
    """Whether our program is the result where programs cannot be compared; otherwise that is an error."""


BY_DEFAULT = Refinement(
    feedback=0, rounds=5, round_seconds=0.1, stock=False, hopeless=1.25, build_seconds=10.0, is_optional=True
)
"""How ``compile`` compares programs unless it is told otherwise."""


@dataclass(frozen=True, slots=True)
class Refined:
    """The fastest program, and the comparison that it won."""

    mod: IRModule
    executable: relax.VMExecutable
    report: ProgramComparison | None = None
    """None: programs were not compared."""
    remarks: tuple[str, ...] = ()
    """Why they were not, or what else is notable about the program."""
    percentile: float = MEDIAN
    """The percentile that the costs of its kernels are."""
