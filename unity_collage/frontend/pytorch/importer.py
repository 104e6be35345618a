"""From an ``ExportedProgram`` to a Relax module with its weights as constants.

The graph is decomposed first, and then walked once. Values that depend only on weights are computed here by torch
itself. All other nodes have a converter, and its result is compared with the shape and dtype that torch knows.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, TensorArgument
from torch.utils import _pytree as pytree
from tvm import ir, relax
from tvm.ir import IRModule
from tvm.relax import op

from ...errors import ModelError, first_line
from ...tvm_private import end_open_blocks
from ..called import with_called
from ..eager import EagerModel
from ..opaque import with_remarks
from .branches import conditional, has_branches, is_cond, is_while_loop, repeated
from .constants import Constants, is_constant, why_not_computed
from .context import (
    HALVES,
    CallRefused,
    Complex,
    Context,
    Value,
    are_equal,
    dtype_name,
    dtype_of,
    shape_of,
)
from .converters import MOVES
from .decompositions import table
from .elsewhere import CalledOperators, has_complex, reason_of
from .nodes import bound, checked_dtype, converter_of, failure, is_half, needed_for
from .stored import RESULTS, eager_model
from .symbols import LearntSizes

_LOG = logging.getLogger(__name__)

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_CHANGED = {OutputKind.BUFFER_MUTATION: "buffer", OutputKind.PARAMETER_MUTATION: "parameter"}


def imported(
    program: ExportedProgram, asks_torch: bool = False
) -> tuple[IRModule, tuple[str, ...], tuple[str, ...], EagerModel]:
    """The module, the names of its inputs and outputs, and the model as PyTorch runs it.

    ``main`` takes the tensors among the inputs, flattened in torch's order. It returns one tensor if the model returns
    one, else a tuple of all tensors in what it returns, flattened in order: fields of dicts and of dataclasses,
    elements of tuples. What is not a tensor (None, numbers) is left out. With ``asks_torch`` an operator that is not
    converted becomes a call of PyTorch.

    Raises ModelError with the reason in one line.
    """
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)  # of torch about its own parts
            warnings.filterwarnings(
                "ignore", message="A model attribute .* requires gradient"
            )  # of TorchScript
            decomposed = program.run_decompositions(dict(table()))
    except Exception as error:  # torch raises whatever its decompositions raise
        raise ModelError(
            f"this model cannot be imported: torch cannot decompose it: {first_line(error)}"
        ) from error
    importer = _Importer(decomposed, asks_torch)
    try:
        with torch.no_grad():
            return *importer.run(), eager_model(program, decomposed)
    except Exception:
        end_open_blocks(importer.builder)
        raise


class _Importer:
    """The walk over one graph."""

    def __init__(self, program: ExportedProgram, asks_torch: bool) -> None:
        self._program = program
        self._sizes = LearntSizes()
        self._constants = Constants()
        self.builder = relax.BlockBuilder()
        self._values: dict[fx.Node, Value] = {}
        self._elsewhere = CalledOperators(self.builder, self._sizes, self._constants) if asks_torch else None

    def run(self) -> tuple[IRModule, tuple[str, ...], tuple[str, ...]]:
        signature = self._program.graph_signature
        specs = {spec.arg.name: spec for spec in signature.input_specs}
        nodes = list(self._program.graph.nodes)
        results = self._results(nodes[-1])
        needed = needed_for(results)
        self._check_mutations(needed)
        inputs = [
            node for node in nodes if node.op == "placeholder" and not self._is_known(node, specs[node.name])
        ]
        params = self._params(inputs)
        branches = has_branches(self._program.graph_module)
        with self.builder.function("main", params):
            # Branches end a block of dataflow: such graphs are emitted without one and get several afterwards.
            with nullcontext() if branches else self.builder.dataflow():
                for node, param in zip(inputs, params, strict=True):
                    self._values[node] = self._cast(node, param)
                for node in nodes:
                    if node.op in ("call_function", "get_attr") and node in needed:
                        self._values[node] = self._value(node, self._program.graph_module)
                returned = self._returned([self._tensor(node) for node in results])
                output = returned if branches else self.builder.emit_output(returned)
            self.builder.emit_func_output(output)
        mod = self.builder.finalize()
        if branches:
            mod = relax.transform.ConvertToDataflow(min_size=1)(with_called(mod))
        return (
            mod if self._elsewhere is None else with_remarks(mod, self._elsewhere.remarks),
            tuple(param.name for param in params),
            tuple(node.name for node in results),
        )

    def _results(self, output: fx.Node) -> list[fx.Node]:
        """The nodes of the tensors that the model returns."""
        specs = self._program.graph_signature.output_specs
        found = []
        for arg, spec in zip(output.args[0], specs, strict=True):  # pyright: ignore[reportArgumentType]
            if spec.kind not in RESULTS:
                continue
            if isinstance(spec.arg, ConstantArgument):
                if spec.arg.value is not None:
                    _LOG.warning(
                        "the program does not return the module's result %r: it returns tensors",
                        spec.arg.value,
                    )
                continue
            if not isinstance(spec.arg, TensorArgument):
                raise ModelError(f"this model cannot be imported: its result {spec.arg.name} is not a tensor")
            found.append(arg)
        if not found:
            raise ModelError("this model cannot be imported: it returns no tensor")
        return found

    def _returned(self, outputs: Sequence[relax.Expr]) -> relax.Expr:
        """One tensor if the model returns one, else a tuple."""
        spec = self._program.call_spec.out_spec
        is_single = spec is not None and spec.is_leaf() and len(outputs) == 1
        return outputs[0] if is_single else relax.Tuple(list(outputs))

    def _check_mutations(self, needed: set[fx.Node]) -> None:
        """Refuses a model whose results depend on a weight that it changes: weights are constants of the program."""
        mutated = {
            spec.target: spec.kind
            for spec in self._program.graph_signature.output_specs
            if spec.kind in _CHANGED
        }
        read = {node.name for node in needed if node.op == "placeholder"}
        for spec in self._program.graph_signature.input_specs:
            if spec.target in mutated and spec.arg.name in read:
                what = f"{_CHANGED[mutated[spec.target]]} {spec.target}"
                raise ModelError(
                    f"this model cannot be imported: it changes its {what}, and its results depend on that; "
                    "make it an input and an output"
                )
        for spec in self._program.graph_signature.output_specs:
            if spec.kind is OutputKind.USER_INPUT_MUTATION:
                _LOG.warning(
                    "the module changes its input %s, which the program leaves as it is", spec.target
                )

    def _is_known(self, node: fx.Node, spec: InputSpec) -> bool:
        """Whether an input is a weight or a constant, whose value is known then."""
        if spec.kind in _WEIGHTS:
            self._values[node] = self._weight(spec)
            return True
        if isinstance(spec.arg, ConstantArgument):
            self._values[node] = spec.arg.value
            return True
        if spec.kind is not InputKind.USER_INPUT or not isinstance(spec.arg, TensorArgument):
            raise ModelError(f"this model cannot be imported: its input {node.name} is not a tensor")
        return False

    def _params(self, inputs: Sequence[fx.Node]) -> list[relax.Var]:
        """The parameters of the program."""
        shapes = self._sizes.declare_inputs([node.meta["val"].shape for node in inputs])
        return [
            relax.Var(node.name, relax.TensorType(shape, checked_dtype(node.meta["val"].dtype, node.name)))
            for node, shape in zip(inputs, shapes, strict=True)
        ]

    def _cast(self, node: fx.Node, param: relax.Var) -> relax.Var:
        """An input with its sizes as torch knows them: an axis that is a multiple is written as one."""
        shape = self._sizes.shape(node.meta["val"])
        if are_equal(shape, shape_of(param)):
            return param
        return self.builder.match_cast(param, relax.TensorType(shape, dtype_of(param)))

    def _weight(self, spec: InputSpec) -> Any:
        target = spec.target or ""
        state, constants = self._program.state_dict, self._program.constants
        return state[target] if target in state else constants[target]

    def _value(self, node: fx.Node, module: Any) -> Value:
        """The value of a node: a known value of torch, a size, an expression, or a list of them."""
        if node.op == "get_attr":
            return getattr(module, str(node.target))
        args, kwargs = fx.map_arg((node.args, node.kwargs), self._values.__getitem__)
        if is_constant(args) and is_constant(kwargs):
            reason = why_not_computed(node)
            if reason is None:
                found = node.target(*args, **kwargs)  # pyright: ignore[reportCallIssue]
                self._sizes.learn(node.meta.get("val"), found)
                return found
        known = node.meta.get("val")
        if isinstance(known, (int, torch.SymInt)) and not isinstance(known, bool):
            return self._sizes.of(known)
        return self._converted(node, args, kwargs)

    def _converted(self, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Value:
        if node.target in _SUBGRAPHS:
            return self._inlined(*args[_SUBGRAPHS[node.target] :])
        if is_cond(node):
            return self._conditional(node, *args)
        if is_while_loop(node):
            return self._repeated(node, *args)
        if getattr(node.target, "__name__", "") == "getitem":
            return args[0][args[1]]
        if isinstance(node.meta.get("val"), (torch.SymBool, bool)):
            return None
        if not isinstance(node.target, torch._ops.OpOverload):
            raise failure(node, "there is no converter for it")
        given = bound(node, args, kwargs)
        try:
            if has_complex(given):
                raise CallRefused("it computes with complex numbers")
            return self._by_converter(node, given)
        except Exception as error:  # a refusal, or a fault of a converter
            return self._by_torch(node, given, error)

    def _by_torch(self, node: fx.Node, given: Sequence[Value], error: Exception) -> Value:
        """The results of PyTorch for a node that is not converted."""
        reason = reason_of(error)
        if self._elsewhere is None:
            raise failure(node, reason) from error
        try:
            return self._elsewhere.call(node, given, reason)
        except CallRefused as refused:
            raise failure(node, f"{reason} (PyTorch cannot be called for it: {refused})") from error

    def _by_converter(self, node: fx.Node, given: Sequence[Value]) -> Value:
        name, convert = converter_of(node)
        given = [self._argument(arg) for arg in given]
        is_widened = name not in MOVES and any(is_half(leaf) for leaf in pytree.tree_leaves(given))
        cx = Context(self.builder, node, self._sizes, is_widened, self._constants)
        if is_widened:
            given = pytree.tree_map(lambda leaf: cx.cast(leaf, "float32") if is_half(leaf) else leaf, given)
        return self._checked(node, convert(cx, *given))

    def _inlined(self, module: fx.GraphModule, *operands: Value) -> Value:
        """The results of a graph inside the graph, such as a part without gradients."""
        nodes = list(module.graph.nodes)
        self._values.update(zip((node for node in nodes if node.op == "placeholder"), operands, strict=False))
        for node in nodes:
            if node.op in ("call_function", "get_attr"):
                self._values[node] = self._value(node, module)
        return fx.map_arg(nodes[-1].args[0], self._values.__getitem__)

    def _conditional(
        self,
        node: fx.Node,
        condition: Value,
        yes: fx.GraphModule,
        no: fx.GraphModule,
        operands: Sequence[Value],
    ) -> Value:
        """The results of one of two graphs, by a condition that is known or a tensor."""
        if isinstance(condition, (bool, torch.Tensor)):
            return self._inlined(yes if condition else no, *operands)
        if not isinstance(condition, relax.Expr):
            raise failure(node, "its condition depends on sizes: fix them")

        branches = {
            "branch_true": partial(self._graph, node, yes),
            "branch_false": partial(self._graph, node, no),
        }
        try:
            return conditional(self.builder, condition, branches, operands, self._sizes)
        except CallRefused as refused:
            raise failure(node, str(refused)) from refused

    def _repeated(
        self,
        node: fx.Node,
        condition: fx.GraphModule,
        body: fx.GraphModule,
        carried: Sequence[Value],
        operands: Sequence[Value],
    ) -> Value:
        """The values of a loop that ends when a graph says so."""

        def holds(inside: Sequence[Value]) -> list[relax.Expr]:
            return [self._argument(each) for each in pytree.tree_leaves(self._inlined(condition, *inside))]

        try:
            first = [self._argument(value) for value in carried]
            if not all(
                isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType) for value in first
            ):
                raise CallRefused("it carries numbers that are no tensors")
            return repeated(
                self.builder, holds, partial(self._graph, node, body), first, operands, self._sizes
            )
        except CallRefused as refused:
            raise failure(node, str(refused)) from refused

    def _graph(self, node: fx.Node, module: fx.GraphModule, operands: Sequence[Value]) -> list[relax.Expr]:
        """The results of a graph of ``node``, which have the types of the results of ``node``."""
        found = [self._argument(each) for each in self._inlined(module, *operands)]
        return [self._checked_tensor(node, *pair) for pair in zip(found, node.meta["val"], strict=True)]

    def _argument(self, value: Value) -> Value:
        """A known tensor as a constant of Relax, in lists too."""
        if isinstance(value, torch.Tensor):
            return self._constants.of(value)
        return [self._argument(each) for each in value] if isinstance(value, (list, tuple)) else value

    def _checked(self, node: fx.Node, result: Value) -> Value:
        """``result`` as variables, each of which has the shape and dtype that torch knows."""
        known = node.meta.get("val")
        if not isinstance(result, list):
            return None if result is None else self._checked_tensor(node, result, known)
        self._check_parts(node, result)
        return [
            None if each is None else self._checked_tensor(node, each, one)
            for each, one in zip(result, known or (), strict=False)
        ]

    def _check_parts(self, node: fx.Node, result: Sequence[Value]) -> None:
        """Refuses a list of results that lacks one which the model reads."""
        for user in node.users:
            place = user.args[1] if getattr(user.target, "__name__", "") == "getitem" else None
            if isinstance(place, int) and user.users and result[place] is None:
                raise CallRefused(f"its result {place} is not supported")

    def _checked_tensor(self, node: fx.Node, result: relax.Expr, known: Any) -> relax.Expr:
        value = self._emitted(result, node.name)
        dtype = dtype_name(known.dtype)
        if dtype in HALVES and dtype_of(value) == "float32":
            value = self._emitted(op.astype(value, dtype), node.name)
        found = shape_of(value)
        self._sizes.learn_shape(known, found)
        wanted = self._sizes.shape(known)
        differs = len(found) != len(wanted) or any(
            isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(found, wanted, strict=True)
        )
        if differs or dtype_of(value) != dtype:
            raise CallRefused(
                f"it became {dtype_of(value)}{found} instead of {dtype}{wanted}: please report this"
            )
        return value

    def _emitted(self, expr: relax.Expr, name: str) -> Any:
        return expr if isinstance(expr, (ir.GenericConst, relax.Var)) else self.builder.emit(expr, name)

    def _tensor(self, node: fx.Node) -> relax.Expr:
        """A result of the model; one that is known is a constant."""
        try:
            if isinstance(self._values[node], Complex):
                raise CallRefused("a result of the model is complex: return torch.view_as_real of it")
            return self._argument(self._values[node])
        except CallRefused as refused:
            raise failure(node, str(refused)) from refused


_SUBGRAPHS: Mapping[Any, int] = {
    torch.ops.higher_order.wrap_with_set_grad_enabled: 1,
    torch.ops.higher_order.wrap_with_autocast: 4,
}
"""Operators that run a graph, and which of their arguments it is; its operands follow it."""
