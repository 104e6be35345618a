"""The dataflow view of a Relax function: plain data that rules, costs and search work on."""

from .. import (
    operators as operators,
)  # registers our operators: a graph that is read from a file may call them
from ..index_set import IndexSet, index_set, members
from .dataflow import DataflowGraph, Node, used_vars
from .extract import Signatures, extract, outside_vars, substitute
from .kinds import OpKind
from .nested import Nested
from .sub_graph import Limits, SubGraph, short_name
from .union import disjoint_union, index_mapping, substituted, wrapped

__all__ = [
    "DataflowGraph",
    "IndexSet",
    "Limits",
    "Nested",
    "Node",
    "OpKind",
    "Signatures",
    "SubGraph",
    "disjoint_union",
    "extract",
    "index_mapping",
    "index_set",
    "members",
    "outside_vars",
    "short_name",
    "substitute",
    "substituted",
    "used_vars",
    "wrapped",
]
