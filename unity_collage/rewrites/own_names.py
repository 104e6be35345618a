"""Names: every variable of a function's blocks gets a unique name, so that a name means one binding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tvm import relax

from .bindings import substituted


def with_own_names(func: relax.Function) -> relax.Function:
    """``func`` with the names that its script shows: a name that an earlier variable has gets a number."""
    return renamed(func, dict(_numbered(func)))


def renamed(func: relax.Function, fresh: Mapping[relax.Var, relax.Var]) -> relax.Function:
    """``func`` with new variables for those that its blocks bind; variables that are bound in branches stay."""
    if not fresh:
        return func
    reading = substituted(func, fresh)
    blocks = [type(block)([_rebound(b, fresh) for b in block.bindings]) for block in reading.body.blocks]
    body = relax.SeqExpr(blocks, reading.body.body)
    new = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)
    return relax.BlockBuilder().normalize(new)


def _numbered(func: relax.Function) -> Iterator[tuple[relax.Var, relax.Var]]:
    taken = {param.name for param in func.params}
    last: dict[str, int] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            var = binding.var
            name, count = var.name, last.get(var.name, 0)
            while name in taken:
                count += 1
                name = f"{var.name}_{count}"
            last[var.name] = count
            taken.add(name)
            if name != var.name:
                yield var, type(var)(name, var.ty)


def _rebound(binding: relax.Binding, fresh: Mapping[relax.Var, relax.Var]) -> relax.Binding:
    var = fresh.get(binding.var, binding.var)
    if isinstance(binding, relax.MatchCast):
        return relax.MatchCast(var, binding.value, binding.ty)
    return relax.VarBinding(var, binding.value)
