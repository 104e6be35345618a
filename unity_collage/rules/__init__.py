"""Partition rules: which groups of operators a backend could make one kernel of.

Rules are frozen values that compose like passes do; ``print(rule)`` shows the tree.
"""

from .algebra import Composite, OnlyValid, Primitive, Union
from .base import Declined, Found, Nested, Rule
from .calls import Host, OpCallByKind, OpPredicate
from .coalesce import Kernel, MaxCoalesce, coalesce
from .combine import Combine
from .combiners import ByKind, Combiner, Constant, JoinAnything, TupleArgument, TupleProjection
from .cone import FusionCone
from .horizontal import Horizontal
from .pattern import DFPattern
from .primitives import PrimitiveChain
from .taken_back import TakenBack
from .tree import rule_tree
from .vertical import Vertical

__all__ = [
    "ByKind",
    "Combine",
    "Combiner",
    "Composite",
    "Constant",
    "DFPattern",
    "Declined",
    "Found",
    "FusionCone",
    "Horizontal",
    "Host",
    "JoinAnything",
    "Kernel",
    "MaxCoalesce",
    "Nested",
    "OnlyValid",
    "OpCallByKind",
    "OpPredicate",
    "Primitive",
    "PrimitiveChain",
    "Rule",
    "TakenBack",
    "TupleArgument",
    "TupleProjection",
    "Union",
    "Vertical",
    "coalesce",
    "rule_tree",
]
