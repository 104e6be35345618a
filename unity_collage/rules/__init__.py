"""Partition rules: which groups of operators a backend could make one kernel of."""

from .base import Declined, Found, OnlyValid, OpPredicate, Rule, Union
from .cone import FusionCone
from .pattern import DFPattern
from .primitives import PrimitiveChain

__all__ = [
    "DFPattern",
    "Declined",
    "Found",
    "FusionCone",
    "OnlyValid",
    "OpPredicate",
    "PrimitiveChain",
    "Rule",
    "Union",
]
