"""Walk a module and collect its facts: annotations become claims, and calls relate the places of their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax, runtime, tirx
from tvm.ir import IRModule
from tvm.target import Target

from ..annotations import DEVICE
from ..graph.calls import op_name
from ..plan.placed import ID, KIND, SCOPE, TARGET
from .facts import Owner, PlacingFacts, Scopes, TreesOfFunction
from .reading import (
    ANYWHERE,
    COPY,
    HINT,
    KERNEL_CALLS,
    MADE_BY_HOST,
    READ_BY_HOST,
    callee_name,
    free_parts,
    has_type,
    same_device,
    shown,
)
from .table import GLOBAL, kind_of, target_text
from .trees import Tree, leaves, pairs, tensors


def collect(mod: IRModule, facts: PlacingFacts) -> PlacingFacts:
    """All facts of the Relax functions of ``mod``; raises CollageError where two annotations disagree."""
    functions = {g: f for g, f in mod.functions_items() if isinstance(f, relax.Function)}
    walks = {gvar: _Walk(mod, facts, gvar.name_hint, func) for gvar, func in functions.items()}
    for gvar, func in functions.items():
        walks[gvar].declare(gvar, func)
    for gvar, func in functions.items():
        walks[gvar].define(gvar, func)
    return facts


class _Walk:
    """One walk over a global function and the functions inside it."""

    def __init__(self, mod: IRModule, facts: PlacingFacts, name: str, func: relax.Function) -> None:
        self._mod, self._facts, self._name = mod, facts, name
        self._free = free_parts(func)

    def declare(self, owner: Owner, func: relax.Function) -> None:
        """The trees of the parameters and the result, and the claims about them."""
        params = [self._variable(param) for param in func.params]
        name = owner.name_hint if isinstance(owner, relax.GlobalVar) else owner.name
        result_name = self._facts.unique(f"the result of {name}", self._name)
        result = self._facts.tree(func.ret_ty, result_name, self._name)
        self._facts.signatures[owner] = TreesOfFunction(params, result)
        for param, tree in zip(func.params, params, strict=True):
            self._claim(param.ty, tree, ())
        for part, value, text in self._pins(name, func):
            for tree in (*params, result):
                for leaf in leaves(tree):
                    self._facts.claim(leaf, {part: value}, text)

    def define(self, owner: Owner, func: relax.Function) -> None:
        """The bindings, and that the body is the result."""
        signature = self._facts.signatures[owner]
        body = self._sequence(func.body)
        self._claim(func.ret_ty, signature.result, [func.body.body.ty])
        self._facts.together(body, signature.result, f"the return of {self._name}")

    def _pins(self, name: str, func: relax.Function) -> list[tuple[str, Any, str]]:
        attrs: Any = func.attrs or {}
        found: list[tuple[str, Any, str]] = []
        table = self._facts.table
        if DEVICE in attrs:
            label = str(attrs[DEVICE])
            said = table.named(label).parts()
            text = f"the attribute {DEVICE} of {name} says {label}"
            found += [(part, value, text) for part, value in said.items() if part != SCOPE]
        elif isinstance(attrs.get("target"), Target):
            target = table.least_specialised(attrs["target"])
            text = f"the target of {name} says {target_text(target)}"
            found += [(KIND, kind_of(target), text), (TARGET, target, text)]
        return found

    def _variable(self, var: relax.Var) -> Tree:
        self._facts.names[var] = name = self._facts.unique(var.name, self._name)
        tree = self._facts.tree(var.ty, name, self._name)
        self._facts.trees[var] = tree
        return tree

    def _claim(self, ty: ir.Type, tree: Tree, inferred: Sequence[ir.Type]) -> None:
        """The claims of a type, without parts that TVM inferred from operands or that an earlier plan chose by
        default.
        """
        facts = self._facts
        known = {
            facts.table.index(d) for each in inferred for t in tensors(each) if (d := t.vdevice) is not None
        }
        for leaf, tensor in zip(leaves(tree), tensors(ty), strict=True):
            if tensor.vdevice is None:
                continue
            index = facts.table.index(tensor.vdevice)
            if index in known:
                continue
            on, free = self._free.get(facts.all_leaves[leaf].name, (-1, ()))
            said = facts.said(tensor.vdevice)
            said = {part: v for part, v in said.items() if not (on == index and part in free)}
            text = f"the type of `{facts.all_leaves[leaf].name}` in {self._name} says "
            facts.claim(leaf, said, text + facts.table.shown(tensor.vdevice))

    def _sequence(self, body: relax.Expr) -> Tree:
        if not isinstance(body, relax.SeqExpr):
            return self._read(body)
        for block in body.blocks:
            for binding in block.bindings:
                self._binding(binding)
        return self._read(body.body)

    def _read(self, expr: relax.Expr) -> Tree:
        """The tree of an operand; a literal has new leaves, since it is on the device that reads it."""
        if isinstance(expr, relax.Var) and expr in self._facts.trees:
            return self._facts.trees[expr]
        if isinstance(expr, relax.Tuple):
            return tuple(self._read(item) for item in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            source = self._read(expr.tuple_value)
            return source[expr.index] if isinstance(source, tuple) else None
        return self._facts.tree(expr.ty, "a literal", self._name) if has_type(expr) else None

    def _binding(self, binding: relax.Binding) -> None:
        var, value = binding.var, binding.value
        if isinstance(value, relax.Function):
            self.declare(var, value)
            self.define(var, value)
            self._facts.trees[var] = None
            return
        tree = self._variable(var)
        if isinstance(value, relax.If):
            self._branches(var, tree, value)
        elif isinstance(value, relax.Call):
            self._call(var, tree, value)
        else:
            inferred = [value.ty] if isinstance(binding, relax.VarBinding) and has_type(value) else []
            self._claim(var.ty, tree, inferred)
            self._facts.together(tree, self._read(value), f"`{var.name}` in {self._name}")

    def _branches(self, var: relax.Var, tree: Tree, value: relax.If) -> None:
        facts = self._facts
        condition = self._read(value.cond)
        use = facts.fresh_like(condition, f"the condition of `{var.name}`")
        facts.uses[var] = [use]
        for leaf, source in zip(leaves(use), leaves(condition), strict=True):
            self._host(leaf)
            facts.on_host.append(source)
        branches = (value.true_branch, value.false_branch)
        results = [self._sequence(branch) for branch in branches]
        self._claim(
            var.ty, tree, [branch.body.ty for branch in branches if isinstance(branch, relax.SeqExpr)]
        )
        for result in results:
            facts.together(result, tree, f"the branches of `{var.name}` in {self._name}")

    def _host(self, leaf: int) -> None:
        text = "values that the VM reads are on the host"
        self._facts.claim(leaf, self._facts.table.host.parts(), text, derived=True)

    def _call(self, var: relax.Var, tree: Tree, call: relax.Call) -> None:
        name = op_name(call)
        if name in (HINT, COPY):
            self._boundary(var, tree, call)
        elif name in KERNEL_CALLS:
            self._kernel(var, tree, call)
        elif isinstance(call.op, (relax.GlobalVar, relax.Var)) and call.op in self._facts.signatures:
            self._function(var, tree, call, self._facts.signatures[call.op])
        else:
            self._operator(var, tree, call, name)

    def _boundary(self, var: relax.Var, tree: Tree, call: relax.Call) -> None:
        """A hint or a copy determines the place of its result, not of its operand."""
        facts, source, attrs = self._facts, self._read(call.args[0]), call.attrs
        between = [(a, b, "") for a, b in pairs(source, tree)]
        facts.boundaries += between
        if op_name(call) == HINT:
            said: dict[str, Any] = {KIND: int(attrs.device_type), ID: int(attrs.index)}
            target = facts.table.hinted(said[KIND], said[ID])
            if target is not None:
                said[TARGET] = target
            if str(attrs.memory_scope) not in ("", GLOBAL):
                said[SCOPE] = str(attrs.memory_scope)
            says = str(runtime.Device(said[KIND], said[ID]))
            facts.soft_scopes += between
            text = f"R.hint_on_device of `{var.name}` in {self._name} says {says}"
        else:
            device = attrs.dst_vdevice
            said, index = facts.said(device), facts.table.index(device)
            on, free = self._free.get(facts.names[var], (-1, ()))
            said = {part: value for part, value in said.items() if not (on == index and part in free)}
            text = f"R.to_vdevice of `{var.name}` in {self._name} says {facts.table.shown(device)}"
            if same_device(call.args[0].ty, device):
                facts.soft_devices += between
            if SCOPE not in said:
                facts.soft_scopes += between
        for leaf in leaves(tree):
            facts.claim(leaf, said, text)

    def _kernel(self, var: relax.Var, tree: Tree, call: relax.Call) -> None:
        """A kernel is on one device, and each of its operands and results in the scope of its buffer."""
        facts, callee = self._facts, call.args[0]
        assert isinstance(callee, relax.GlobalVar)
        name, prim = callee.name_hint, self._mod.functions.get(callee)
        reason = f"the call of {name} for `{var.name}` in {self._name}"
        operands = self._operands(call.args[1])
        read = [self._read(operand) for operand in operands]
        use = [facts.fresh_like(each, f"an operand of {name}") for each in read]
        self._claim(var.ty, tree, [operand.ty for operand in operands if has_type(operand)])
        for source, inner in zip(read, use, strict=True):
            facts.together(source, inner, reason, Scopes.COPIED)
        facts.all_together([tree, *use], reason, Scopes.OWN)
        facts.uses[var] = [None, tuple(use)]
        if isinstance(prim, tirx.PrimFunc):
            self._buffers(prim, name, [*use, *(tree if isinstance(tree, tuple) else (tree,))], call)

    def _buffers(self, prim: tirx.PrimFunc, name: str, trees: Sequence[Tree], call: relax.Call) -> None:
        facts, attrs = self._facts, prim.attrs or {}
        target: Any = attrs.get("target")
        params = list(prim.params)
        if op_name(call) == "relax.call_tir_inplace":
            places = [int(i) for i in call.attrs.inplace_indices]
            operands = len(trees) - len(places)
            fresh = iter(params[operands:])
            params = params[:operands] + [params[i] if i >= 0 else next(fresh) for i in places]
        for tree, param in zip(trees, params, strict=False):
            for leaf in leaves(tree):
                if isinstance(param.ty, tirx.buffer.BufferType):
                    buffer: Any = param.ty
                    scope = str(buffer.storage_scope) or GLOBAL
                    text = f"the buffer `{param.name}` of {name} says scope {scope}"
                    facts.claim(leaf, {SCOPE: scope}, text)
                if isinstance(target, Target):
                    least = facts.table.least_specialised(target)
                    text = f"the target of {name} says {target_text(least)}"
                    facts.claim(leaf, {KIND: kind_of(least), TARGET: least}, text)

    def _operands(self, expr: relax.Expr) -> list[relax.Expr]:
        return list(expr.fields) if isinstance(expr, relax.Tuple) else [expr]

    def _function(self, var: relax.Var, tree: Tree, call: relax.Call, signature: TreesOfFunction) -> None:
        facts = self._facts
        reason = f"the call of {callee_name(call.op)} for `{var.name}` in {self._name}"
        facts.uses[var] = list(signature.params)
        for operand, param in zip(call.args, signature.params, strict=True):
            facts.together(self._read(operand), param, reason, Scopes.COPIED)
        func = self._mod.functions.get(call.op) if isinstance(call.op, relax.GlobalVar) else None
        self._claim(var.ty, tree, [func.ret_ty if isinstance(func, relax.Function) else call.ty])
        facts.together(tree, signature.result, reason)

    def _operator(self, var: relax.Var, tree: Tree, call: relax.Call, name: str) -> None:
        facts = self._facts
        read = [self._read(operand) for operand in call.args]
        operands = [operand.ty for operand in call.args if has_type(operand)]
        self._claim(var.ty, tree, operands)
        anywhere = name in ANYWHERE
        use = read if anywhere else [facts.fresh_like(each, f"an operand of `{var.name}`") for each in read]
        facts.uses[var] = use
        reason = f"{shown(call)} for `{var.name}` in {self._name}"
        if name in MADE_BY_HOST:
            facts.made[var] = facts.fresh_like(tree, var.name)
            for leaf, seen in zip(leaves(facts.made[var]), leaves(tree), strict=True):
                self._host(leaf)
                facts.on_host.append(seen)
            return
        for place, (source, inner) in enumerate(zip(read, use, strict=True)):
            if name in READ_BY_HOST and place == 0:
                for leaf, seen in zip(leaves(inner), leaves(source), strict=True):
                    self._host(leaf)
                    facts.on_host.append(seen)
            elif not anywhere:
                facts.together(source, inner, reason, Scopes.COPIED)
        if not anywhere:
            first = 1 if name in READ_BY_HOST else 0
            facts.all_together([tree, *use[first:]], reason)
