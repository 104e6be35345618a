"""The driver: run rules over the dataflow blocks of a function until none applies.

A sweep rebuilds each block from the first binding to the last, and tries the rules at every call as it is emitted. So
later rules see the result of an earlier rule within the same sweep. Equal calls become one binding on the way, and
dead bindings are removed before and after. After a few sweeps no rule applies any more.

Where the function changes memory in place, definitions that read it are forgotten behind the write (``changes``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tvm import ir, relax
from tvm.ir import IRModule

from ..graph.devices import on_device_of_operands
from ..graph.steps import before_steps
from .bindings import is_visible_outside, live, map_operands, operands, substituted
from .changes import Changes
from .rewrite import Rewrite, RewriteError, rewrites_by_op
from .scope import Expr, Scope, op_name
from .value_number import value_number
from .why_not import is_no

_SWEEPS = 40
_REWRITES_OF_ONE_BINDING = 100
"""Limits far above what correct rules need: beyond them two rules undo each other."""


def rewrite_function(
    func: relax.Function, rules: Iterable[Rewrite], mod: IRModule | None = None
) -> relax.Function:
    """``func`` with ``rules`` applied in every dataflow block until nothing changes; the argument is not edited.

    Other blocks than dataflow blocks stay; only the variables that they read are replaced.
    ``mod`` is where the functions that ``func`` calls are looked up.
    """
    at = rewrites_by_op(rules)
    fired: set[str] = set()
    for _ in range(_SWEEPS):
        fired.clear()
        func, changed = _sweep(func, at, fired, mod)
        if not changed:
            return func
    raise RewriteError(f"the rules do not terminate; the last sweep applied {sorted(fired)}")


def why_not_rewritable(block: relax.BindingBlock) -> str | None:
    """Why a block is skipped, or None if rules may be applied in it."""
    if not isinstance(block, relax.DataflowBlock):
        return "not a dataflow block: order and side effects matter in it"
    for binding in block.bindings:
        if isinstance(binding.value, (relax.Function, relax.SeqExpr, relax.If)):
            return f"{binding.var.name} holds a nested scope"
    return None


def _sweep(
    func: relax.Function, at: Callable[[str], tuple[Rewrite, ...]], fired: set[str], mod: IRModule | None
) -> tuple[relax.Function, bool]:
    """One pass over all blocks, and whether it changed anything."""
    blocks: list[relax.BindingBlock] = []
    changed = False
    outputs: dict[relax.Var, Expr] = {}
    changes = Changes(func, mod)
    for block in func.body.blocks:
        if why_not_rewritable(block) is None:
            rewriter = _BlockRewriter(block, at, fired, Scope(mod), outputs, changes)
            block = rewriter.run()
            changed |= rewriter.changed
        blocks.append(block)
    if not changed:
        return func, False
    body = relax.SeqExpr(blocks, func.body.body)
    new = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)
    return relax.BlockBuilder().normalize(substituted(new, outputs)), True


class _BlockRewriter:
    """One sweep over one block."""

    def __init__(
        self,
        block: relax.BindingBlock,
        at: Callable[[str], tuple[Rewrite, ...]],
        fired: set[str],
        scope: Scope,
        outputs: dict[relax.Var, Expr],
        changes: Changes,
    ):
        """``outputs`` maps outputs of earlier blocks to their new values; the outputs of this block are added.

        ``changes`` is the memory that the function changes in place.
        """
        self._old = live(block.bindings)
        self.changed = len(self._old) != len(block.bindings)
        self._at = at
        self._fired = fired
        self._scope = scope
        self._scope.before_steps = before_steps(self._old)
        self._scope.uses.update(var for binding in self._old for var in operands(binding.value))
        self._outputs = outputs
        self._changes = changes
        self._renamed = dict(outputs)
        self._numbered: dict[object, relax.Var] = {}
        self._bindings: list[relax.Binding] = []
        self._builder = relax.BlockBuilder()

    def run(self) -> relax.DataflowBlock:
        for binding in self._old:
            if isinstance(binding, relax.MatchCast):
                # A value that is a call, not a variable, gets a binding of its own before the match_cast.
                value = self._operand(binding.value)
                self._bindings.append(relax.MatchCast(binding.var, value, binding.ty))
                self._changes.bind(binding.var, value)
            else:
                self._rebind(binding)
        return relax.DataflowBlock(live(self._bindings))

    def _rebind(self, binding: relax.Binding) -> None:
        """Emit one binding of the old block; its variable stays where that is possible."""
        result = self._emit(binding.value, binding.var)
        if result.same_as(binding.var):
            return
        if isinstance(result, relax.Var):
            self._scope.uses[result] += self._scope.uses[binding.var]
            self._changes.rename(binding.var, result)
            if binding.var in self._scope.before_steps:
                self._scope.before_steps.add(result)
        self._renamed[binding.var] = result
        if not isinstance(binding.var, relax.DataflowVar):
            self._rebind_output(binding.var, result)

    def _rebind_output(self, var: relax.Var, value: Expr) -> None:
        """Record what other blocks read instead of ``var``: a new name for a value of this block, unless it has one."""
        if not is_visible_outside(value):
            out = var if _same_type(var.ty, value.ty) else relax.Var(var.name, value.ty)
            self._bindings.append(relax.VarBinding(out, value))
            self._changes.bind(out, value)
            value = out
        if not value.same_as(var):
            self._outputs[var] = value

    def _emit(self, expr: Expr, keep: relax.Var | None = None) -> Expr:
        """Bind ``expr``, rewritten as far as it goes, and return the leaf that stands for it.

        ``keep`` is the variable to bind it to if that fits.
        """
        expected: ir.Type | None = None
        applied: list[str] = []
        for _ in range(_REWRITES_OF_ONE_BINDING):
            if not isinstance(expr, (relax.Call, relax.TupleGetItem)):
                return _checked(self._leaf(expr), expected, applied)
            node = on_device_of_operands(map_operands(expr, self._operand, self._builder))
            expected = expected or node.ty
            rule, rewritten = self._rewritten(node, keep)
            if rewritten is None:
                return _checked(self._bind(node, keep), expected, applied)
            applied.append(rule)
            expr = rewritten
        raise RewriteError(f"the rules do not terminate at {op_name(expr)}: {sorted(set(applied))}")

    def _rewritten(self, node: Expr, var: relax.Var | None) -> tuple[str, Expr | None]:
        """The result of the first rule that applies to ``node``, which ``var`` is bound to."""
        for rule in self._at(op_name(node)):
            new = rule.rewrite(node, self._scope)
            if not is_no(new) and self._changes.may_replace(node, new, var):
                self._fired.add(rule.name)
                self.changed = True
                return rule.name, new
        return "", None

    def _operand(self, expr: Expr) -> Expr:
        """The leaf for an operand; one that is itself a new call gets a binding of its own."""
        if not isinstance(expr, (relax.Call, relax.TupleGetItem)):
            return self._leaf(expr)
        leaf = self._emit(expr)
        if isinstance(leaf, relax.Var):
            self._scope.uses[leaf] += 1
        return leaf

    def _leaf(self, expr: Expr) -> Expr:
        if isinstance(expr, relax.Tuple):
            return map_operands(expr, self._operand, self._builder)
        return self._renamed.get(expr, expr) if isinstance(expr, relax.Var) else expr

    def _bind(self, node: Expr, keep: relax.Var | None) -> relax.Var:
        """The variable bound to ``node``: an earlier one if the same value was computed before."""
        number = value_number(node) if self._changes.may_be_one(node, keep) else None
        if number is not None and self._scope.is_defined(self._numbered.get(number)):
            self.changed = True
            return self._numbered[number]
        if keep is None or not _same_type(keep.ty, node.ty):
            kind = relax.DataflowVar if keep is None else type(keep)
            keep = kind("lv" if keep is None else keep.name, node.ty)
        self._bindings.append(relax.VarBinding(keep, node))
        for outdated in self._changes.bind(keep, node):
            self._scope.forget(outdated)
        self._scope.define(keep, node)
        if number is not None:
            self._numbered[number] = keep
        return keep


def _checked(leaf: Expr, expected: ir.Type | None, applied: list[str]) -> Expr:
    """``leaf``, checked for its type, which the rules ``applied`` must not have changed."""
    if expected is not None and applied and not expected.is_base_of(leaf.ty):
        raise RewriteError(f"{' and '.join(applied)} turned a value of type {expected} into {leaf.ty}")
    return leaf


def _same_type(left: ir.Type, right: ir.Type) -> bool:
    return left.is_base_of(right) and right.is_base_of(left)
