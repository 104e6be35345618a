"""The loops over the register tiles of one reduction, and the code of one tile.

The loops, from the outermost to the innermost:

* batch axes, along which all operands in the lanes change;
* the tiles of columns, if the operand in the lanes is too large for the first-level cache (*heavy*). All rows then use
  one tile of columns, from a copy if that pays, before the next tile is read;
* all other axes and the tiles of rows;
* the tiles of columns, if the operand in the lanes is small;
* the reduction, with the statements of one tile inside.

The outer loops are parallel, as many as make enough tasks for the cores. A tile computes its initial values, the
reduction, and then the epilogue. If a tile has too few vectors to hide the latency of an addition, it is computed in
several independent *chains*. Their results are combined at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import gcd, prod
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx import ForKind
from tvm.tirx.stmt import Stmt

from . import borders, build, lanes, packing, prefetch, tiling
from .axes import axis
from .cpu import CpuTraits
from .stage import Buffer, Expr, Iter, Stage, Var, expensive_calls
from .tiling import Tile

_TASKS_A_CORE = 8
_CHAINS = 4
"""How many independent vectors of sums hide the latency of an addition."""
_LEAST_STEPS = 8
"""The least steps of a reduction in each chain for chains to pay."""
_FEW_ROWS = 4
"""The height of the tiles for fewer rows than a tile has, where their number is known only when the program runs."""
_LEAST_TURNS = 4
"""The least number of rows of tiles that use a copy of columns for the copy to pay."""

Values = dict[Var, Expr]
Place = tuple[int, Expr]
"""An element of the tile: the number of its vector in a row, and its index in the buffer of these vectors of all
rows."""
Code = Callable[[Stage, Values], Stmt]
"""Returns for a reduction and the values of the iterators outside of it the code of one tile."""
Write = Callable[[Place, Values], Stmt]
"""Returns for a place in the tile and the values of the iterators the statement that writes the element there."""


class TileLoops:
    """The loops over tiles of one reduction."""

    def __init__(
        self, stage: Stage, result: Stage, tile: Tile, cpu: CpuTraits, higher: TileLoops | None = None
    ) -> None:
        """``higher``: the loops over the same columns in higher tiles; the rows that fill none of those are computed
        here."""
        self.stage, self.result, self.tile, self.cpu = stage, result, tile, cpu
        self.exact = tiling.must_not_overlap(stage, result)
        turns, self.left = build.tiled(tile.lane.size or 1, tile.width)
        self.column = axis(tile.lane.var, turns) if higher is None else higher.column
        turns, self.top = self._rows_of_tiles()
        self.rows = [axis(tile.row.var, turns)] if tile.row else []
        self.others = [it for it in stage.spatial if it is not tile.lane and it is not tile.row]
        step = tile.width if tile.steps else tile.vector
        self.vectors = [min(step, tile.width - start) for start in range(0, tile.width, step)]
        self.chains = self._chains()
        self.fetch: prefetch.Fetch | None = None
        self.turns, (self.turn, self.share) = (
            1,
            (tirx.Var(name, tile.lane.var.ty) for name in ("turn", "share")),
        )
        self.lower = self._of_fewer_rows(higher)
        self.balanced = self._of_balanced_rows() if higher is None else []

    def _rows_of_tiles(self) -> tuple[int | Expr, Callable[[Expr], Expr]]:
        """The number of rows of tiles, and the function to the first row of a tile: from its number, or, if the number
        of rows is not known, from the row where it would begin without an overlap."""
        row, height = self.tile.row, self.tile.height
        if row is None:
            return 1, lambda turn: turn
        if row.size is not None:
            return build.tiled(row.size, height)
        turns = tirx.truncdiv(row.extent + (height - 1), height)
        if self.exact or height == 1:
            return turns, lambda first: first
        return turns, lambda first: tirx.min(first, row.extent - height)

    def _of_fewer_rows(self, higher: TileLoops | None) -> TileLoops | None:
        """The same with lower tiles, for rows that fill no tile; None if there are no such rows.

        There are none if the number of rows is known, or a multiple of a number that is large enough. Tiles that must
        not overlap get the rows that the tiles of ``higher`` leave.
        """
        row, height = self.tile.row, self.tile.height
        if row is None or row.size is not None or height == 1:
            return None
        factor = tiling.factor(row.extent)
        if higher is not None and self.exact:
            factor = gcd(factor, higher.tile.height)
        if factor % height == 0 or (factor > height and not self.exact):
            # Code for fewer rows would run for none only, and TVM finds divisions by zero in it.
            return None
        lower = _FEW_ROWS if height > _FEW_ROWS else 1
        return TileLoops(self.stage, self.result, replace(self.tile, height=lower), self.cpu, self)

    def _of_balanced_rows(self) -> list[TileLoops]:
        """The same with lower tiles, the highest first, for numbers of rows that the tiles would cover with an overlap:
        20 rows are 3 tiles of 7 rows instead of 8."""
        row, height = self.tile.row, self.tile.height
        if row is None or row.size is not None or self.exact or tiling.factor(row.extent) % height == 0:
            return []
        least = height // 2 + 1  # of two tiles for one more row than a tile has
        return [
            TileLoops(self.stage, self.result, replace(self.tile, height=each), self.cpu, self)
            for each in range(height - 1, least - 1, -1)
        ]

    def _chains(self) -> int:
        """The number of independent chains: more than one for a tile of few vectors."""
        count = 1 if self.tile.steps else _CHAINS // (self.tile.height * len(self.vectors))
        steps = self.stage.reduction[-1].size if self.stage.reduction else None
        if count < 2 or steps is None or steps < count * _LEAST_STEPS:
            return 1
        return 1 if lanes.why_not_partial(self.stage) else count

    def emit(self, threads: bool) -> Stmt:
        wide = tiling.wide(self.stage, self.tile.lane)
        batch = [
            it for it in self.others if self.rows and wide and all(tiling.varies(load, it) for load in wide)
        ]
        rest = [it for it in self.others if not any(it is one for one in batch)]
        heavy = bool(self.rows) and tiling.heavy(wide[0])
        if heavy and self._why_not_copy(wide, batch, rest) is None:
            return build.parallel(
                [*batch, self.column], lambda values: self._copied(values, batch, rest), threads
            )
        rows = [*rest, *self.rows]
        # With columns in the inner loop, each core writes whole rows and has them in its caches in the next kernel.
        order = [*batch, self.column, *rows] if heavy else [*batch, *rows, self.column]
        if heavy and self.column.size == 1 and len(wide) == 1 and None not in [it.size for it in rest]:
            self._fetch_ahead(wide[0], batch, rest)
        split = self._tasks(order) if threads else len(order)

        def inside(values: Values) -> Stmt:
            def tiles(code: Code) -> Stmt:
                return build.nest(order[split:], lambda inner: code(self.stage, {**values, **inner}))

            return self._by_rows(tiles)

        return build.parallel(order[:split], inside, threads)

    def _fetch_ahead(self, load: TensorLoad, batch: Sequence[Iter], rest: Sequence[Iter]) -> None:
        """Let the tiles fetch the next panel of ``load``; the innermost of the loops ``batch`` goes over panels.

        Each of the ``rest`` times the rows of tiles fetches a part. How many there are may be known only when the
        program runs.
        """
        (rows,) = self.rows
        free = rows.size is None
        if self.chains == 1 and not (free and self.exact):
            turns = [*rest, replace(rows, var=self.turn) if free else rows]
            share = self.share if free else -(-self.tile.width // prod(it.size or 1 for it in turns))
            self.turns = prod(it.size or 1 for it in rest)
            self.fetch = prefetch.of_next_panel(self.stage, load, self.tile, batch, turns, share)
            for lower in self.balanced:
                lower.fetch = self.fetch
        if self.lower is not None:
            self.lower._fetch_ahead(load, batch, rest)

    def _with_share(self, body: Stmt) -> Stmt:
        """``body`` after the share of the next panel that each turn fetches, where the program must compute it."""
        if self.fetch is None or self.rows[0].size is not None:
            return body
        turns = self.rows[0].extent * self.turns
        return build.seq(build.opaque(self.share, tirx.truncdiv(turns + (self.tile.width - 1), turns)), body)

    def _tasks(self, order: Sequence[Iter]) -> int:
        """How many of the outer loops must be parallel to make enough tasks for the cores."""
        for count in range(1, len(order)):
            turns = build.product(order[:count])
            if turns is not None and turns >= _TASKS_A_CORE * self.cpu.cores:
                return count
        return len(order)

    def _why_not_copy(
        self, wide: Sequence[TensorLoad], batch: Sequence[Iter], rest: Sequence[Iter]
    ) -> str | None:
        """Why the operand in the lanes is read in place, without a copy of its columns, or None."""
        if len(wide) != 1:
            return "several operands fill the lanes"
        if self.column.size == 1:
            return "a tile has whole rows"
        if (build.product(batch) or 1) * (self.column.size or 1) < 2 * self.cpu.cores:
            return "there are too few columns for the threads"
        turns = build.product([*rest, *self.rows])
        if turns is not None and turns < _LEAST_TURNS:
            return "the copy would be used too seldom"
        return packing.why_not_columns(self.stage, wide[0], [*batch, self.tile.lane])

    def _copied(self, values: Values, batch: Sequence[Iter], rest: Sequence[Iter]) -> Stmt:
        """All tiles of one column, from a copy of the operand's columns."""
        tile = self.tile
        stage = self.stage.substituted({it.var: values[it.var] for it in batch}, self.stage.iters)
        (load,) = tiling.wide(stage, tile.lane)
        left = self.left(values[self.column.var])
        copy, buffer, narrow = packing.columns(stage, load, tile.lane, left, tile.width, self.cpu)

        def tiles(code: Code) -> Stmt:
            return build.nest([*rest, *self.rows], lambda inner: code(narrow, {**values, **inner}))

        return build.with_buffers([buffer], build.seq(copy, self._by_rows(tiles)), "columns")

    def _by_rows(self, tiles: Callable[[Code], Stmt]) -> Stmt:
        """``tiles``, which is given the code of one tile.

        If the number of rows is not known, it is one of several, by that number. Their tiles are as high as is needed
        for as many turns. Fewer rows than a tile has are in lower tiles.

        The choice is outside of the loops. With a condition on the first row of a tile in them, products took 2.4 times
        as long.
        """
        row, height = self.tile.row, self.tile.height
        if row is None or row.size is not None or height == 1:
            return tiles(self._tile)
        turn = self.rows[0].var
        if self.exact:
            return tiles(lambda stage, at: self._at_row(stage, at, at[turn] * height, self.lower))
        needed = tirx.Var("height", turn.ty)

        def of(loops: TileLoops) -> Stmt:
            return tiles(
                lambda stage, at: loops._at_row(stage, {**at, self.turn: at[turn]}, at[turn] * needed, None)
            )

        chosen = of(self)
        for lower in self.balanced:
            chosen = tirx.IfThenElse(needed <= lower.tile.height, of(lower), chosen)
        turns = self.rows[0].extent
        height_of_rows = build.opaque(needed, tirx.truncdiv(row.extent + (turns - 1), turns))
        chosen = build.seq(height_of_rows, self._with_share(chosen))
        if (fewer := self.lower) is not None:
            few = tiles(lambda stage, at: fewer._from(stage, at, tirx.const(0, turn.expr_ty().dtype)))
            chosen = tirx.IfThenElse(row.extent >= height, chosen, few)
        # TVM moves the divisions by the number of turns out of the loops over rows. A maximum with 1 does not help: it
        # knows that there are turns in the loops, and removes the maximum first.
        return tirx.IfThenElse(row.extent > 0, chosen, None)

    def _at_row(self, stage: Stage, at: Values, row: Expr, lower: TileLoops | None) -> Stmt:
        """The tile that begins at ``row``; if too few rows follow, and ``lower`` is given, these rows in its tiles."""
        first = tirx.Var("first", self.rows[0].var.ty)
        at = {**at, self.rows[0].var: first}
        tile = self._tile_by_border(stage, at)
        body = tile if lower is None else self._if_filled(stage, at, first, tile, lower)
        return build.seq(build.opaque(first, row), body)

    def _tile_by_border(self, stage: Stage, at: Values) -> Stmt:
        """The code of one tile; a high one that touches no border has code without the conditions of the padding."""
        row, height, lane = self.tile.row, self.tile.height, self.tile.lane
        assert row is not None
        steps = [it.size for it in stage.reduction]
        if height <= _FEW_ROWS or None in steps:
            return self._tile(stage, at)
        zero = tirx.const(0, row.var.expr_ty().dtype)
        spans: dict[Var, tuple[Expr, int]] = {
            **{it.var: (at[it.var], 1) for it in self.others if it.var in at},
            row.var: (self.top(at[self.rows[0].var]), height),
            lane.var: (self.left(at[self.column.var]), self.tile.width),
            **{it.var: (zero, it.size or 1) for it in stage.reduction},
        }
        found = borders.inside(stage, spans)
        if found is None:
            return self._tile(stage, at)
        condition, inner = found
        return tirx.IfThenElse(condition, self._tile(inner, at), self._tile(stage, at))

    def _if_filled(self, stage: Stage, at: Values, first: Expr, tile: Stmt, lower: TileLoops) -> Stmt:
        """``tile`` if there are rows for it, else those from ``first`` on in lower tiles."""
        row, height = self.tile.row, self.tile.height
        assert row is not None
        filled = first + height <= row.extent if self.exact else row.extent >= height
        return tirx.IfThenElse(filled, tile, lower._from(stage, at, first))

    def _from(self, stage: Stage, at: Values, begin: Expr) -> Stmt:
        """All rows from ``begin`` on."""
        row, height = self.tile.row, self.tile.height
        assert row is not None

        def tiles(turn: Expr) -> Stmt:
            return self._at_row(stage, {**at, self.turn: turn}, begin + turn * height, self.lower)

        turns = tirx.truncdiv(row.extent - begin + (height - 1), height)
        return self._with_share(build.loop(turns, tiles, row.var))

    def _tile(self, stage: Stage, at: Values) -> Stmt:
        """The code of one tile: initialise, reduce, write."""
        fixed = {it.var: at[it.var] for it in self.others}
        result = self.result.substituted(fixed, self.result.iters)
        stage = stage.substituted(fixed, stage.iters)
        store = stage.store
        assert store is not None
        acc = [self._vectors(store.buffer, "acc") for _ in range(self.chains)]

        def written(source: Sequence[Buffer], place: Place, values: Values) -> Stmt:
            final = result.substituted(values, []).store
            assert final is not None
            value = _from_tile(final.value, store.buffer, source, place)
            return tirx.BufferStore(final.buffer, value, final.indices)

        buffers, summed = [buffer for chain in acc for buffer in chain], self._summed(stage, acc, at)
        if not self._long_epilogue(result):
            write = self._each(at, {}, lambda place, values: written(acc[0], place, values))
            return build.with_buffers(buffers, build.seq(summed, write), stage.name)
        done = self._vectors(store.buffer, "done")
        keep = self._each(at, {}, lambda place, _: _store(done, _load(acc[0], place), place))
        write = self._each(at, {}, lambda place, values: written(done, place, values), unrolled=False)
        return build.with_buffers([*buffers, *done], build.seq(summed, keep, write), stage.name)

    def _vectors(self, like: Buffer, name: str) -> list[Buffer]:
        """The storage of a tile, one buffer for each vector of a row.

        TVM puts only buffers of less than ``STACK_BYTES`` on the stack, and LLVM keeps only those in registers.
        """
        return [build.buffer((self.tile.height * width,), like, name) for width in self.vectors]

    def _summed(self, stage: Stage, acc: Sequence[Sequence[Buffer]], at: Values) -> Stmt:
        """The reduction of one tile in ``acc``, by chains, which are combined in the first at the end."""
        store: Any = stage.store

        def started(chain: int) -> Stmt:
            def write(place: Place, values: Values) -> Stmt:
                first: Any = stage.substituted(values, []).init
                return _store(acc[chain], first.value, place)

            return self._each(at, {}, write)

        def reduced(step: Values, chain: int) -> Stmt:
            def write(place: Place, values: Values) -> Stmt:
                update: Any = stage.substituted(values, []).store
                value = _from_tile(update.value, store.buffer, acc[chain], place)
                return _store(acc[chain], value, place)

            return self._each(at, step, write)

        def joined(chain: int, other: int) -> Stmt:
            def write(place: Place, _: Values) -> Stmt:
                parts = [_load(acc[part], place) for part in (chain, other)]
                return _store(acc[chain], type(store.value)(*parts), place)

            return self._each(at, {}, write)

        starts = [started(chain) for chain in range(self.chains)]
        joins = [joined(*two) for two in _tree(self.chains)]
        return build.seq(*starts, self._steps(stage, reduced, at), *joins)

    def _steps(self, stage: Stage, reduced: Callable[[Values, int], Stmt], at: Values) -> Stmt:
        """The whole reduction. Each iteration over its last axis has one step of each chain; the remaining steps
        follow."""
        if self.fetch is not None:
            fetch = self.fetch
            return build.nest(
                stage.reduction, lambda step: build.seq(fetch({**at, **step}), reduced(step, 0))
            )
        if self.chains == 1:
            return build.nest(stage.reduction, lambda step: reduced(step, 0))
        *outer, last = stage.reduction
        turns, rest = divmod(last.size or 1, self.chains)

        def all_chains(step: Values, first: Expr, count: int) -> Stmt:
            return build.seq(*(reduced({**step, last.var: first + chain}, chain) for chain in range(count)))

        def along(step: Values) -> Stmt:
            loop = build.loop(turns, lambda i: all_chains(step, i * self.chains, self.chains), last.var)
            left = tirx.const(turns * self.chains, last.var.expr_ty().dtype)
            return build.seq(loop, all_chains(step, left, rest)) if rest else loop

        return build.nest(outer, along)

    def _long_epilogue(self, result: Stage) -> bool:
        """Whether the epilogue is too long to be unrolled.

        Then it is a loop over the tile, which is stored before it, because a loop cannot index registers.
        """
        return not self.tile.steps and bool(expensive_calls(result.body))

    def _each(self, at: Values, step: Values, write: Write, unrolled: bool = True) -> Stmt:
        """``write`` for each element of the tile: rows unrolled, lanes in vectors."""
        tile, left = self.tile, self.left(at[self.column.var])
        kind = ForKind.SERIAL if tile.steps else ForKind.VECTORIZED

        def row(r: Expr) -> Stmt:
            return build.seq(*(vector(r, number, width) for number, width in enumerate(self.vectors)))

        def vector(r: Expr, number: int, width: int) -> Stmt:
            def lane(i: Expr) -> Stmt:
                values = {**step, tile.lane.var: left + (number * self.vectors[0] + i)}
                if tile.row is not None:
                    values[tile.row.var] = self.top(at[self.rows[0].var]) + r
                return write((number, r * width + i), values)

            return build.loop(width, lane, tile.lane.var, kind)

        along = (tile.row or tile.lane).var
        return build.loop(tile.height, row, along, ForKind.UNROLLED if unrolled else ForKind.SERIAL)


def _tree(count: int) -> list[tuple[int, int]]:
    """The pairs of a binary tree that combines ``count`` values in the first one, in order."""
    pairs: list[tuple[int, int]] = []
    while count > 1:
        half = -(-count // 2)
        pairs += [(i, i + half) for i in range(count - half)]
        count = half
    return pairs


def _load(tile: Sequence[Buffer], place: Place) -> Expr:
    number, index = place
    return tirx.BufferLoad(tile[number], [index])


def _store(tile: Sequence[Buffer], value: Expr, place: Place) -> Stmt:
    number, index = place
    return tirx.BufferStore(tile[number], value, [index])


def _from_tile(value: Expr, results: Buffer, tile: Sequence[Buffer], place: Place) -> Expr:
    """``value`` with its loads of the reduction's result replaced by loads from the tile."""

    def load(node: TensorLoad) -> Expr:
        return _load(tile, place) if node.source.same_as(results) else node

    return tvm_ffi.structural_map(value, (TensorLoad, load))
