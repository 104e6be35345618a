"""The facts of a module before it is solved: trees of its variables, claims, and values that have to be together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tvm import ir, relax

from ..errors import CollageError
from ..plan.placed import SCOPE
from .solver import Claim, Disagreement, Unifier
from .table import DeviceTable, joined
from .trees import Tree, leaves, pairs, tree_of


class Scopes(Enum):
    """How the memory scopes of leaves on one device depend on each other."""

    SAME = "one scope"
    COPIED = "one scope unless something else is said, otherwise a copy"
    OWN = "each its own"


Owner = relax.GlobalVar | relax.Var
"""The variable that a function is called by; that of a local function is a local variable."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One tensor of one variable, or of one use or result of a call."""

    name: str
    """Its name in messages, and in the attribute that lists values placed by default."""
    function: str
    small: bool
    """Whether it has the type of a shape or a condition: a scalar, or a list of 64-bit integers."""


@dataclass(slots=True)
class TreesOfFunction:
    """The trees of a function's parameters and of its result."""

    params: list[Tree]
    result: Tree


@dataclass(slots=True)
class PlacingFacts:
    """All facts that a plan is solved from. Device types, targets and ids are solved together, scopes after them."""

    table: DeviceTable
    devices: Unifier = field(default_factory=lambda: Unifier(joined))
    scopes: Unifier = field(default_factory=lambda: Unifier(joined))
    all_leaves: list[Leaf] = field(default_factory=list)
    names: dict[relax.Var, str] = field(default_factory=dict)
    """A name for each variable, unique in its function."""
    _taken: dict[str, set[str]] = field(default_factory=dict)
    trees: dict[relax.Var, Tree] = field(default_factory=dict)
    uses: dict[relax.Var, list[Tree]] = field(default_factory=dict)
    """For the variable that a call is bound to: where the call reads each operand."""
    made: dict[relax.Var, Tree] = field(default_factory=dict)
    """For the variable that a call is bound to: where the call writes, if a copy to the variable may follow."""
    signatures: dict[Owner, TreesOfFunction] = field(default_factory=dict)
    soft_devices: list[tuple[int, int, str]] = field(default_factory=list)
    """Pairs that are on one device unless something else is said; otherwise a copy is made."""
    soft_scopes: list[tuple[int, int, str]] = field(default_factory=list)
    """Pairs on one device that have one scope unless something else is said; otherwise a copy is made."""
    boundaries: list[tuple[int, int, str]] = field(default_factory=list)
    """Pairs with a hint or a copy between them: they are one value if both are in one place."""
    on_host: list[int] = field(default_factory=list)
    """Leaves that the host reads or writes; they are placed on the host unless something else is said."""

    def unique(self, name: str, function: str) -> str:
        """``name``, with a number if a value of the function has it: attributes list values by their names."""
        taken = self._taken.setdefault(function, set())
        made, count = name, 0
        while made in taken:
            count += 1
            made = f"{name}_{count}"
        taken.add(made)
        return made

    def tree(self, ty: ir.Type, name: str, function: str) -> Tree:
        """A tree of new leaves for ``ty``."""
        return tree_of(ty, lambda leaf, tensor: self._add(leaf, tensor, function), name)

    def fresh_like(self, tree: Tree, name: str) -> Tree:
        """A tree of new leaves in the form of another."""
        if isinstance(tree, int):
            model = self.all_leaves[tree]
            self.all_leaves.append(Leaf(name, model.function, model.small))
            return self._added()
        return None if tree is None else tuple(self.fresh_like(part, name) for part in tree)

    def _add(self, name: str, tensor: relax.TensorType, function: str) -> int:
        wide = tensor.ndim == 1 and str(tensor.dtype) == "int64"
        self.all_leaves.append(Leaf(name, function, tensor.ndim == 0 or wide))
        return self._added()

    def _added(self) -> int:
        self.scopes.add()
        return self.devices.add()

    def claim(self, leaf: int, parts: dict[str, Any], text: str, derived: bool = False) -> None:
        """Claim parts of a leaf's place; raises CollageError where another annotation disagrees."""
        for part, value in parts.items():
            unifier = self.scopes if part == SCOPE else self.devices
            self._check(unifier.claim(Claim(part, value, leaf, text, derived)))

    def said(self, device: relax.VDevice) -> dict[str, Any]:
        """The parts that a VDevice specifies."""
        return dict(self.table.said_by(device).parts())

    def together(self, first: Tree, second: Tree, reason: str, scopes: Scopes = Scopes.SAME) -> None:
        """Put two trees on the same devices, and in scopes as requested; raises CollageError if they cannot be."""
        for a, b in pairs(first, second):
            self._check(self.devices.unify(a, b, reason))
            if scopes is Scopes.SAME:
                self._check(self.scopes.unify(a, b, reason))
            elif scopes is Scopes.COPIED:
                self.soft_scopes.append((a, b, reason))

    def all_together(self, trees: Iterable[Tree], reason: str, scopes: Scopes = Scopes.SAME) -> None:
        """The leaves of all trees are on one device."""
        flat = [leaf for tree in trees for leaf in leaves(tree)]
        for leaf in flat[1:]:
            self.together(flat[0], leaf, reason, scopes)

    def _check(self, disagreement: Disagreement | None) -> None:
        if disagreement is not None:
            raise CollageError(message(disagreement, self.all_leaves))


def message(disagreement: Disagreement, all_leaves: list[Leaf]) -> str:
    """Both annotations, the values between them, and a remedy, in one line."""
    path = [all_leaves[leaf] for leaf in disagreement.path]
    several = len({leaf.function for leaf in path}) > 1
    names = list(dict.fromkeys(f"{leaf.function}.{leaf.name}" if several else leaf.name for leaf in path))
    names = [name for name in names if "an operand of" not in name] or names
    first, second = disagreement.claims
    text = f"`{names[-1]}` cannot be in two places: {first.text}, and {second.text}"
    if not disagreement.reasons:
        return f"{text}; remove one of the two annotations"
    between = " - ".join(f"`{name}`" for name in names)
    why = ", ".join(dict.fromkeys(disagreement.reasons))
    return (
        f"{text}. These values have to be together: {between} ({why}). "
        f"Put R.to_vdevice or R.hint_on_device on `{names[-1]}` before {disagreement.reasons[-1]}, "
        f"or remove one of the two annotations"
    )
