"""DataflowGraph: the bindings of a Relax function as an indexed graph.

Every binding of every block is a node: calls, tuples, projections, shape expressions, calls of ``call_tir``,
``call_dps_packed`` and global functions, and the results of control flow. Nodes are numbered block by block. A
``call_tir`` is an operator like another: its kind is that of its PrimFunc, which the module has.
Inside a dataflow block the order is post-dfs: a producer comes before its consumers, and a chain is numbered
consecutively. Constants and inline tuples belong to the binding that mentions them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import tvm
from tvm import ir, relax, tirx
from tvm.ir import IRModule

from ..index_set import EMPTY, IndexSet, index_set
from .in_place import ChangedMemory, changed_readers
from .kinds import OpKind, call_kinds, call_signature, kind_without_kernel
from .prim_funcs import CALL_TIR, callee_of, prim_func_of, prim_kinds, tensors_of

_HOST_OPS = frozenset(
    {
        "relax.reshape",
        "relax.expand_dims",
        "relax.squeeze",
        "relax.flatten",
        "relax.shape_of",
        "relax.shape_to_tensor",
        "relax.tensor_to_shape",
        "relax.memory.view",
        "relax.memory.ensure_zero_offset",
    }
)
"""Operators that the VM evaluates by itself, as views or shape arithmetic."""


@dataclass(frozen=True, eq=False)
class Node:
    """One binding. Rules ask often, and reading an expression of TVM takes long: what is found is remembered."""

    index: int
    """Post-dfs index."""
    binding: relax.Binding
    op: str
    """Operator name such as ``relax.nn.conv2d``; ``tuple``, ``getitem``, ``call:NAME``, ``if``, ... otherwise."""
    inputs: tuple[int, ...]
    """Indexes of the bindings that it reads, each once, in order of first mention; then those that it must wait for."""
    block: int
    """The number of its binding block."""
    in_dataflow: bool
    """Whether that block is a dataflow block: only dataflow blocks may be partitioned."""
    prim: tirx.PrimFunc | None = None
    """The PrimFunc that it calls with ``call_tir``; None if it calls none, or the graph was made without a module."""
    changed_by: str = ""
    """The later binding that changes an operand in place; empty if there is none."""

    @property
    def var(self) -> relax.Var:
        return self.binding.var

    @property
    def value(self) -> relax.Expr:
        return self.binding.value

    @cached_property
    def call(self) -> relax.Call | None:
        """The value if it is a call of an operator, else None."""
        value = self.binding.value
        return value if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op) else None

    @cached_property
    def operands(self) -> tuple[relax.Expr, ...]:
        """The arguments of the call that are values; the tensors of a ``call_tir``."""
        call = self.call
        if call is None:
            return ()
        return tensors_of(call) if self.op == CALL_TIR else tuple(call.args)

    @cached_property
    def label(self) -> str:
        """The short name of the operator: ``conv2d``; for a ``call_tir``, the name of the PrimFunc."""
        callee = callee_of(self.binding.value)
        return short_name(self.op) if callee is None else callee.name_hint

    @property
    def is_host(self) -> bool:
        """Whether the VM evaluates it for free: tuples, projections, views, shape arithmetic, aliases."""
        return self.op in _HOST_OPS or self.op in ("tuple", "getitem", "var", "constant", "shape")


class DataflowGraph:
    """The nodes of one function, and which node reads which.

    ``mod`` has the PrimFuncs that the function calls. Without it the graph has the same nodes, but each ``call_tir`` is
    opaque.
    """

    def __init__(self, func: relax.Function, mod: IRModule | None = None):
        self.func = func
        self.nodes: tuple[Node, ...] = tuple(_nodes(func, mod))
        self.index_of: dict[relax.Var, int] = {node.var: node.index for node in self.nodes}
        consumers = [EMPTY] * len(self.nodes)
        for node in self.nodes:
            for source in node.inputs:
                consumers[source] |= 1 << node.index
        self.consumers: tuple[IndexSet, ...] = tuple(consumers)
        """For each node, the nodes that read it."""
        self.results: IndexSet = index_set(
            self.index_of[var] for var in used_vars(func.body.body) if var in self.index_of
        )
        """The nodes that the function returns."""

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def size_names(self) -> tuple[tuple[str, ...], ...]:
        """For each node, the names of the sizes in what it reads and writes that are known only when it runs."""
        return tuple(tuple(dict.fromkeys(_size_names(node))) for node in self.nodes)

    @cached_property
    def upstream(self) -> tuple[IndexSet, ...]:
        """For each node, itself and all nodes that it depends on."""
        reach: list[IndexSet] = []
        for node in self.nodes:
            here = 1 << node.index
            for source in node.inputs:
                here |= reach[source]
            reach.append(here)
        return tuple(reach)

    @cached_property
    def changed_memory(self) -> ChangedMemory:
        """The memory that the function changes in place."""
        return ChangedMemory(self.func)

    @cached_property
    def kinds(self) -> tuple[OpKind, ...]:
        """The fusion kind of each node."""
        calls = [node.call for node in self.nodes]
        by_signature = call_kinds(call for call in calls if call is not None and has_kernel(call))
        of_prims = prim_kinds(node.prim for node in self.nodes if node.prim is not None)
        return tuple(self._kind(node, by_signature, of_prims) for node in self.nodes)

    def _kind(
        self, node: Node, by_signature: dict[str, OpKind], of_prims: dict[tirx.PrimFunc, OpKind]
    ) -> OpKind:
        call = node.call
        if node.prim is not None:
            return of_prims[node.prim]
        if call is not None and has_kernel(call):
            return by_signature[call_signature(call)]
        return kind_without_kernel(node.op)


def used_vars(expr: relax.Expr) -> Iterator[relax.Var]:
    """The free variables of ``expr``, in order, possibly repeated.

    The usual arguments (variables, tuples, constants, shapes) are walked here. Expressions that bind variables of their
    own (``If``, local functions) go through TVM's free-variable analysis.
    """
    if isinstance(expr, relax.Var):
        yield expr
    elif isinstance(expr, relax.Tuple):
        for field in expr.fields:
            yield from used_vars(field)
    elif isinstance(expr, relax.TupleGetItem):
        yield from used_vars(expr.tuple_value)
    elif isinstance(expr, relax.Call):
        yield from used_vars(expr.op)
        for arg in expr.args:
            yield from used_vars(arg)
    elif isinstance(expr, (relax.If, relax.SeqExpr, relax.Function)):
        yield from relax.analysis.free_vars(expr)


def _size_names(node: Node) -> Iterator[str]:
    for value in (node.var, *node.operands):
        yield from (var.name for var in relax.analysis.tir_vars_in_type(value.ty))


def has_kernel(call: relax.Call) -> bool:
    """Whether TVM can make a kernel of this operator: it has a legalization and does not call a kernel already."""
    op = call.op
    return (
        isinstance(op, ir.Op)
        and op.get_attr("FLegalize") is not None
        and not op.name.startswith("relax.call_")
    )


def short_name(op: str) -> str:
    """``relax.nn.conv2d`` -> ``conv2d``."""
    return op.rsplit(".", 1)[-1]


def _nodes(func: relax.Function, mod: IRModule | None) -> Iterator[Node]:
    index_of: dict[relax.Var, int] = {}
    for number, block in enumerate(func.body.blocks):
        in_dataflow = isinstance(block, relax.DataflowBlock)
        waits = changed_readers(func, block.bindings, used_vars) if in_dataflow else {}
        changed_by = {reader: var.name for var, readers in waits.items() for reader in readers}
        ordered = _post_dfs(block.bindings, waits) if in_dataflow else block.bindings
        for binding in ordered:
            read = (*used_vars(binding.value), *waits.get(binding.var, ()))
            sources = (index_of[var] for var in read if var in index_of)
            node = Node(
                index=len(index_of),
                binding=binding,
                op=_op_name(binding),
                inputs=tuple(dict.fromkeys(sources)),
                block=number,
                in_dataflow=in_dataflow,
                prim=prim_func_of(binding.value, mod),
                changed_by=changed_by.get(binding.var, ""),
            )
            index_of[binding.var] = node.index
            yield node


def _post_dfs(
    bindings: Iterable[relax.Binding], waits: Mapping[relax.Var, Iterable[relax.Var]]
) -> list[relax.Binding]:
    """Producers first, each chain consecutively: the post-order of a depth-first search from the unread bindings.

    The deepest input is visited first (as in Sethi-Ullman numbering), so a shallow input is numbered right before its
    reader. Few values are then live at any index. This keeps the search small: its states are sets of live values.
    """
    by_var = {binding.var: binding for binding in bindings}
    sources: dict[relax.Var, list[relax.Var]] = {}
    depth: dict[relax.Var, int] = {}
    for var, binding in by_var.items():
        read = (*used_vars(binding.value), *waits.get(var, ()))
        found = dict.fromkeys(used for used in read if used in depth)
        sources[var] = sorted(found, key=lambda used: -depth[used])
        depth[var] = 1 + max((depth[used] for used in found), default=0)
    read = {used for inputs in sources.values() for used in inputs}
    done: dict[relax.Var, relax.Binding] = {}
    for root in by_var:
        stack = [(root, iter(sources[root]))] if root not in read else []
        while stack:
            var, pending = stack[-1]
            following = next((used for used in pending if used not in done), None)
            if following is None:
                done[var] = by_var[var]
                stack.pop()
            else:
                stack.append((following, iter(sources[following])))
    return list(done.values())


def _op_name(binding: relax.Binding) -> str:
    value = binding.value
    if isinstance(binding, relax.MatchCast):
        return "match_cast"
    if isinstance(value, relax.Call):
        if isinstance(value.op, tvm.ir.Op):
            return value.op.name
        return f"call:{value.op.name_hint if isinstance(value.op, relax.GlobalVar) else value.op}"
    names: dict[type[relax.Expr], str] = {
        relax.Tuple: "tuple",
        relax.TupleGetItem: "getitem",
        relax.If: "if",
        ir.GenericConst: "constant",
        relax.ShapeExpr: "shape",
        relax.Function: "function",
    }
    if isinstance(value, relax.Var):
        return "var"
    return names.get(type(value), type(value).__name__)
