"""Near misses: what the rules return at the bindings of a function to which none applies any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tvm import relax
from tvm.ir import IRModule

from ..plan.unrecognised import Unrecognised
from .bindings import operands
from .driver import why_not_rewritable
from .rewrite import Rewrite, rewrites_by_op
from .scope import Expr, Scope, op_name
from .why_not import WhyNot

LIMIT = 200
"""The most near misses that are kept for one function."""

_Found = dict[tuple[str, relax.Var], Unrecognised]


def near_misses(
    func: relax.Function, rules: Iterable[Rewrite], mod: IRModule | None = None
) -> tuple[Unrecognised, ...]:
    """The bindings of ``func`` at which a rule found a part of its form; no rule applies to ``func`` any more.

    The nearest misses come first, in the order of the bindings, and at most ``LIMIT`` are kept. Equal reasons for a
    binding are kept once, from the rule that matched most. ``mod`` is where the rules look up the PrimFuncs that
    ``func`` calls.
    """
    at = rewrites_by_op(rules)
    found = [miss for block in _blocks(func) for miss in _of_block(block, at, Scope(mod))]
    found.sort(key=lambda miss: -miss.matched)
    distinct: dict[tuple[str, str], Unrecognised] = {}
    for miss in found:
        distinct.setdefault((miss.binding, miss.reason), miss)
    return tuple(distinct.values())[:LIMIT]


def _blocks(func: relax.Function) -> Iterator[relax.BindingBlock]:
    return (block for block in func.body.blocks if why_not_rewritable(block) is None)


def _of_block(
    block: relax.BindingBlock, at: Callable[[str], tuple[Rewrite, ...]], scope: Scope
) -> Iterator[Unrecognised]:
    readers: dict[relax.Var, relax.Var] = {}
    for binding in block.bindings:
        for var in operands(binding.value):
            scope.uses[var] += 1
            readers[var] = binding.var
    found: _Found = {}
    for binding in block.bindings:
        if not isinstance(binding, relax.MatchCast):
            for rule, miss in _answers(binding.value, at, scope):
                found[rule.name, binding.var] = Unrecognised(
                    rule.name, binding.var.name, op_name(binding.value), miss.reason, miss.matched
                )
            scope.define(binding.var, binding.value)
    for (rule, var), miss in found.items():
        outer = found.get((rule, readers[var])) if scope.used_once(var) else None
        if outer is None or outer.matched < miss.matched:
            yield miss


def _answers(
    value: Expr, at: Callable[[str], tuple[Rewrite, ...]], scope: Scope
) -> Iterator[tuple[Rewrite, WhyNot]]:
    for rule in at(op_name(value)):
        answer = rule.rewrite(value, scope)
        if isinstance(answer, WhyNot):
            yield rule, answer
