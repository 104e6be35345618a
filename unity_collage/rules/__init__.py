"""Partition rules: which groups of operators a backend could make one kernel of.

Rules are frozen values that compose as passes do; ``print(rule)`` shows the tree of rules.
"""

from .algebra import Composite, OnlyValid, Primitive, Union
from .base import Declined, Found, Nested, Rule
from .calls import Host, OpCallByKind, OpPredicate
from .cancelling import CancellingTransposes
from .coalesce import MaxCoalesce, TaggedKernel, coalesce
from .combine import Combine
from .combiners import ByKind, Combiner, Constant, JoinAnything, TupleArgument, TupleProjection
from .cone import FusionCone
from .horizontal import Horizontal
from .pattern import DFPattern
from .primitives import PrimitiveChain
from .supported_regions import SupportedRegions
from .tree import rule_tree
from .vertical import Vertical
from .whole_cones import WholeCones

__all__ = [
    "ByKind",
    "CancellingTransposes",
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
    "MaxCoalesce",
    "Nested",
    "OnlyValid",
    "OpCallByKind",
    "OpPredicate",
    "Primitive",
    "PrimitiveChain",
    "Rule",
    "SupportedRegions",
    "TaggedKernel",
    "TupleArgument",
    "TupleProjection",
    "Union",
    "Vertical",
    "WholeCones",
    "coalesce",
    "rule_tree",
]
