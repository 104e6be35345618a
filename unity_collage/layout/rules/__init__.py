"""How each operator is translated: a table from operator name to the rule of its family.

A rule takes the block being rewritten and the original call. It binds the call in another layout and returns the
value. Otherwise the call stays as it is, with its operands in the plain layout: None means that they are plain
already, and a WhyNot says why the call cannot use another layout.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from ...rewrites.why_not import WhyNot
from ..block import Block
from ..values import Value
from . import axis_wise, image, joining, moving, pointwise

Rule = Callable[[Block, relax.Call], Value | WhyNot | None]

RULES: dict[str, Rule] = {
    f"relax.{name}": rule
    for family in (pointwise, axis_wise, joining, moving, image)
    for name, rule in family.RULES.items()
}

ANCHORS = frozenset(f"relax.{name}" for name in image.ANCHORS)
"""The operators for which a program is converted at all."""
