"""Write a solution into a module: types with VDevices, and copies where values cross."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, relax
from tvm.ir import IRModule
from tvm.relax import op as relax_op

from ..annotations import DEVICES, FREELY_PLACED
from ..graph.calls import op_name
from ..plan.encoding import encode
from ..plan.placed import NamedDevice
from ..tvm_private import give_type
from .reading import COPY, HINT
from .solution import PlacedValues
from .trees import Tree, leaves, on, typed

op: Any = relax_op


def written(mod: IRModule, solution: PlacedValues) -> IRModule:
    """``mod`` with the places of ``solution``, without hints, since the types now contain their places."""
    functions = {g: f for g, f in mod.functions_items() if isinstance(f, relax.Function)}
    names = {gvar: ir.GlobalVar(gvar.name_hint) for gvar in functions}
    made: dict[ir.GlobalVar, ir.BaseFunc] = {}
    for gvar, func in mod.functions_items():
        if isinstance(func, relax.Function):
            new = _Rewriter(solution, gvar.name_hint, names).function(gvar, func)
            placed = solution.freely_placed(gvar.name_hint)
            if placed:
                new = FREELY_PLACED.write(new, placed)
            elif FREELY_PLACED.on(new):
                new = new.without_attr(FREELY_PLACED.name)
            give_type(names[gvar], new.ty)
            made[names[gvar]] = new
        else:
            made[gvar] = func
    table = solution.facts.table
    result = IRModule(made, attrs=mod.attrs, global_infos=table.global_infos(mod))
    if any(facts != NamedDevice() for facts in table.facts):
        result = result.with_attr(DEVICES.name, encode(tuple(table.facts)))
    return relax.transform.Normalize()(result)


class _Rewriter:
    """One rewriting of a global function and the functions inside it."""

    def __init__(
        self, solution: PlacedValues, function: str, names: Mapping[ir.GlobalVar, ir.GlobalVar]
    ) -> None:
        self._solution, self._function, self._names = solution, function, names
        self._facts = solution.facts
        self._env: dict[relax.Var, relax.Expr] = {}
        self._bindings: list[relax.Binding] = []
        self._inner = False
        self._known: dict[tuple[relax.Expr, int], relax.Var] = {}
        """The copies that the block has made of a variable, by the position of their VDevice."""

    def function(self, owner: Any, func: relax.Function) -> relax.Function:
        """The function with new variables."""
        signature = self._facts.signatures[owner]
        params = [self._new(param, tree) for param, tree in zip(func.params, signature.params, strict=True)]
        body = self._sequence(func.body, signature.result)
        ret_ty = self._typed(func.ret_ty, signature.result)
        return relax.Function(params, body, ret_ty, func.is_pure, func.attrs, func.span)

    def _sequence(self, body: relax.Expr, result: Tree) -> relax.SeqExpr:
        outer, inner, known = self._bindings, self._inner, self._known
        blocks: list[relax.BindingBlock] = []
        for block in body.blocks if isinstance(body, relax.SeqExpr) else ():
            self._bindings, self._inner, self._known = [], isinstance(block, relax.DataflowBlock), {}
            for binding in block.bindings:
                self._binding(binding)
            if self._bindings:
                kind = relax.DataflowBlock if self._inner else relax.BindingBlock
                blocks.append(kind(self._bindings))
        self._bindings, self._inner, self._known = [], False, {}
        last = body.body if isinstance(body, relax.SeqExpr) else body
        value = self._placed(last, result)
        if self._bindings:
            blocks.append(relax.BindingBlock(self._bindings))
        self._bindings, self._inner, self._known = outer, inner, known
        return relax.SeqExpr(blocks, value)

    def _binding(self, binding: relax.Binding) -> None:
        var, value = binding.var, binding.value
        if isinstance(value, relax.Function):
            made = _Nested(self).function(var, value)
            self._env[var] = type(var)(var.name, made.ty)
            self._bind(self._env[var], made)
            return
        tree = self._facts.trees[var]
        if isinstance(value, relax.Call) and op_name(value) in (HINT, COPY):
            self._boundary(var, tree, value)
        elif isinstance(binding, relax.MatchCast):
            source = self._placed(value, tree)
            new = self._new(var, tree)
            self._bindings.append(relax.MatchCast(new, source, self._typed(binding.ty, tree), binding.span))
        elif isinstance(value, ir.GenericConst):
            self._env[var] = value
        elif isinstance(value, relax.If):
            (use,) = self._facts.uses[var]
            condition = self._read(value.cond, use)
            branches = [self._sequence(each, tree) for each in (value.true_branch, value.false_branch)]
            self._bind(self._new(var, tree), relax.If(condition, branches[0], branches[1]))
        elif isinstance(value, relax.Call):
            self._call(var, tree, value)
        else:
            self._bind(self._new(var, tree), self._placed(value, tree))

    def _boundary(self, var: relax.Var, tree: Tree, call: relax.Call) -> None:
        """A hint or a copy: a copy if its operand is elsewhere, else another name."""
        source = call.args[0]
        if not isinstance(source, ir.GenericConst):
            old = self._tree(source)
            new = self._exact(source)
            if self._same(old, tree):
                if isinstance(var, relax.DataflowVar) or not isinstance(new, relax.DataflowVar):
                    self._env[var] = new
                else:
                    self._bind(self._new(var, tree), new)
                return
        else:
            new = source
        self._bind(self._new(var, tree), self._copy(new, tree))

    def _call(self, var: relax.Var, tree: Tree, call: relax.Call) -> None:
        uses = self._facts.uses[var]
        # The parameters of a global function have VDevices, and a literal has none until it is copied.
        read = self._placed if call.op in self._names else self._read
        args = [
            read(arg, use) if use is not None else self._exact(arg)
            for arg, use in zip(call.args, [*uses, *[None] * (len(call.args) - len(uses))], strict=True)
        ]
        made = self._facts.made.get(var, tree)
        ty = self._typed(var.ty, made)
        types = [self._typed(each, made) if _like(each, made) else each for each in call.ty_args]
        new = relax.Call(self._exact(call.op), args, call.attrs, types, call.span, ret_ty=ty)
        if made is tree or self._same(made, tree):
            self._bind(self._new(var, tree), new)
            return
        first = self._variable(self._facts.unique(f"{var.name}_host", self._function), ty)
        self._bind(first, new)
        self._bind(self._new(var, tree), self._copy(first, tree))

    def _read(self, expr: relax.Expr, use: Tree) -> relax.Expr:
        """An operand where it is read; a literal is read anywhere."""
        if isinstance(expr, relax.Var) and isinstance(self._env.get(expr), ir.GenericConst):
            return self._env[expr]
        if isinstance(expr, ir.GenericConst):
            return expr
        if isinstance(expr, relax.Tuple) and isinstance(use, tuple):
            return relax.Tuple([self._read(item, part) for item, part in zip(expr.fields, use, strict=True)])
        return self._placed(expr, use)

    def _placed(self, expr: relax.Expr, place: Tree) -> relax.Expr:
        """An expression with its values where ``place`` says; a literal gets a place by a copy."""
        if isinstance(expr, relax.Tuple) and isinstance(place, tuple):
            fields = zip(expr.fields, place, strict=True)
            return relax.Tuple([self._placed(item, part) for item, part in fields])
        new = self._exact(expr)
        if isinstance(new, ir.GenericConst):
            return self._copied("literal", new, place) if isinstance(place, int) else new
        return self._moved(new, self._tree(expr), place)

    def _moved(self, new: relax.Expr, old: Tree, place: Tree) -> relax.Expr:
        if old is None or place is None or self._same(old, place):
            return new
        hint = new.name if isinstance(new, relax.Var) else "value"
        if isinstance(old, tuple) and isinstance(place, tuple):
            parts = [self._emit(f"{hint}_{i}", relax.TupleGetItem(new, i)) for i in range(len(old))]
            moved = zip(parts, old, place, strict=True)
            return relax.Tuple([self._moved(*each) for each in moved])
        assert isinstance(place, int), "only tensors are copied"
        return self._copied(f"{hint}_copy", new, place)

    def _copied(self, hint: str, value: relax.Expr, place: int) -> relax.Var:
        key = (value, self._solution.index(place))
        if key not in self._known:
            self._known[key] = self._emit(hint, self._copy(value, place))
            literal = isinstance(value, ir.GenericConst)
            self._solution.record_copy(self._function, place, self._known[key].name, literal)
        return self._known[key]

    def _exact(self, expr: relax.Expr) -> relax.Expr:
        """An expression with new variables, its values where they are."""
        if isinstance(expr, relax.Var):
            return self._env.get(expr, expr)
        if isinstance(expr, ir.GlobalVar):
            return self._names.get(expr, expr)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._exact(item) for item in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(self._exact(expr.tuple_value), expr.index)
        return expr

    def _tree(self, expr: relax.Expr) -> Tree:
        if isinstance(expr, relax.Var):
            return self._facts.trees.get(expr)
        if isinstance(expr, relax.Tuple):
            return tuple(self._tree(item) for item in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            source = self._tree(expr.tuple_value)
            return source[expr.index] if isinstance(source, tuple) else None
        return None

    def _copy(self, value: relax.Expr, place: Tree) -> relax.Call:
        assert isinstance(place, int), "only tensors are copied"
        device = self._solution.device(place)
        call = op.to_vdevice(value, device)
        assert isinstance(value.ty, relax.TensorType)
        return relax.Call(call.op, call.args, call.attrs, ret_ty=on(value.ty, device))

    def _same(self, first: Tree, second: Tree) -> bool:
        if first is second:
            return True
        found = zip(leaves(first), leaves(second), strict=True)
        return all(self._solution.device(a) is self._solution.device(b) for a, b in found)

    def _emit(self, name: str, value: relax.Expr) -> relax.Var:
        var = self._variable(self._facts.unique(name, self._function), value.ty)
        self._bind(var, value)
        return var

    def _bind(self, var: Any, value: relax.Expr) -> None:
        self._bindings.append(relax.VarBinding(var, value))

    def _variable(self, name: str, ty: ir.Type) -> relax.Var:
        return (relax.DataflowVar if self._inner else relax.Var)(name, ty)

    def _new(self, var: relax.Var, tree: Tree) -> relax.Var:
        made = type(var)(self._facts.names[var], self._typed(var.ty, tree))
        self._env[var] = made
        self._solution.written.add(var)
        return made

    def _typed(self, ty: ir.Type, tree: Tree) -> ir.Type:
        return typed(ty, tree, self._solution.device)


class _Nested(_Rewriter):
    """A rewriting of a function inside another, and it may read variables of that one.

    Its types stay without VDevices: TVM 0.27 does not parse a local function with one. Values are where the call is.
    """

    def __init__(self, outer: _Rewriter) -> None:
        super().__init__(outer._solution, outer._function, outer._names)
        self._env = outer._env

    def _typed(self, ty: ir.Type, tree: Tree) -> ir.Type:
        return ty

    def _new(self, var: relax.Var, tree: Tree) -> relax.Var:
        made = type(var)(self._facts.names[var], var.ty)
        self._env[var] = made
        return made


def _like(ty: ir.Type, tree: Tree) -> bool:
    """Whether a type has the form of a tree."""
    if isinstance(tree, int):
        return isinstance(ty, relax.TensorType)
    if isinstance(tree, tuple):
        return (
            isinstance(ty, relax.TupleType)
            and len(ty.fields) == len(tree)
            and all(_like(part, inner) for part, inner in zip(ty.fields, tree, strict=True))
        )
    return False
