"""The dataflow view of a Relax function: plain data that rules, costs and search work on."""

from ..index_set import IndexSet, index_set, members
from .dataflow import DataflowGraph, Node, used_vars
from .extract import Signatures, extract, outside_vars, substitute
from .kinds import Kind
from .sub_graph import Limits, SubGraph, short_name

__all__ = [
    "DataflowGraph",
    "IndexSet",
    "Kind",
    "Limits",
    "Node",
    "Signatures",
    "SubGraph",
    "extract",
    "index_set",
    "members",
    "outside_vars",
    "short_name",
    "substitute",
    "used_vars",
]
