"""Writes docs/passes.md: the results of the most important passes for one small module.

usage: python scripts/pass_page.py [--check]

With ``--check`` nothing is written; the exit code is 1 where the page is not what running the passes gives.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R
from tvm.target import Target

import unity_collage as uc
from unity_collage.annotations import CANDIDATES, COSTS, DECLINED, PLAN, UNRECOGNISED
from unity_collage.testing.fixed_cost import FixedCost

PAGE = Path(__file__).resolve().parents[1] / "docs" / "passes.md"
TARGET = Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
COSTS_BY_BACKEND = {"onednn": 1e-6, "tvm": 2e-6}

HEAD = """# The passes, before and after

This page shows one small module after each of the most important passes, in the order in which they run.
`python scripts/pass_page.py` writes the page by running them, and a test compares it with the result of the passes.
The backends are `onednn` and `tvm`. A compile measures costs; here a kernel of `onednn` costs 1 us, and one of `tvm`
2 us. The scripts leave out attributes with their default value, and those of `collage`. Candidates, costs and the plan
are listed in words.

The [reference](api/passes.md) has the names of all passes, and `unity_collage/pipeline.py` their order.
"""

PASSES = (
    (
        uc.passes.Prepare(),
        "Brings operators into canonical forms that rules can match. Here the scale and shift of a batch norm become "
        "part of the convolution's weights, and a bias.",
    ),
    (
        uc.passes.ChannelsLast(),
        "Gives images the layout channels last, in which most libraries are fastest. Weights are reordered once, as "
        "constants.",
    ),
    (
        uc.passes.ToPrecision("bfloat16"),
        "With `--precision bf16` only: decides what is computed in bfloat16, and what stays float32. The passes below "
        "run without it.",
    ),
    (
        uc.passes.AnnotateCandidates(backends=("onednn", "tvm")),
        "Lists every kernel that a backend could make. Only attributes change.",
    ),
    (
        uc.passes.EstimateCosts(FixedCost(COSTS_BY_BACKEND)),
        "Gives every candidate a cost. Only attributes change.",
    ),
    (
        uc.passes.SearchPartition(),
        "Finds the cheapest cover. Its kernels become functions, and `collage.plan` says why.",
    ),
    (uc.passes.OffloadBYOC(), "Turns functions of libraries into calls of runtime modules."),
    (uc.passes.FuseRemaining(), "Turns the other operators into kernels of TVM: PrimFuncs with schedules."),
)
"""Passes, and what each does in a sentence or two."""

_NOT_RUN = "<!-- not run: it is what a pass has made, without its constants -->"
_ASIDE = "ToPrecision"
_TOLD = ("AnnotateCandidates", "EstimateCosts", "SearchPartition")
_DEFAULTS = (
    r", (?:groups=1|dilation=\[1, 1\]|strides=\[1, 1\]|out_dtype=None|center=True|scale=True|"
    r'momentum=[\d.]+|out_layout="\w+")'
)
"""Attributes of operators that the page leaves out."""


def module() -> IRModule:
    """A convolution with a batch norm and a relu, and a mean behind it."""
    rng = np.random.default_rng(0)
    weight = relax.const(rng.standard_normal((8, 3, 3, 3), dtype=np.float32))
    scale, shift, mean, variance = (relax.const(np.full(8, value, np.float32)) for value in (2, 1, 0.5, 4))

    @R.function
    def main(image: R.Tensor((1, 3, 16, 16), "float32")) -> R.Tensor((1, 8, 1, 1), "float32"):
        with R.dataflow():
            conv = R.nn.conv2d(image, weight, padding=1)
            normed = R.nn.batch_norm(conv, scale, shift, mean, variance, axis=1, training=False)
            first = normed[0]
            active = R.nn.relu(first)
            pooled = R.mean(active, axis=[2, 3], keepdims=True)
            R.output(pooled)
        return pooled

    return IRModule({"main": main})


def page() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *_sections()])


def _sections() -> Iterator[str]:
    mod = module()
    yield from ("## The module", "", _fenced(mod), "")
    for each, about in PASSES:
        name = str(each.info.name).removeprefix("collage.")
        with TARGET:
            after = each(mod)
        yield from (f"## {name}", "", about, "")
        script = _fenced(after)
        if script != _fenced(mod):
            yield from (script, "")
        facts = list(_facts(after)) if name in _TOLD else []
        if facts:
            yield from (*facts, "")
        if name != _ASIDE:
            mod = after


def _fenced(mod: IRModule) -> str:
    """The functions of Relax as text, without attributes; PrimFuncs and runtime modules by number."""
    functions = {}
    for gvar, func in mod.functions_items():
        if isinstance(func, relax.Function):
            for annotation in (CANDIDATES, COSTS, DECLINED, PLAN, UNRECOGNISED):
                func = func.without_attr(annotation.name)
            functions[gvar] = func
    prims = {gvar: func for gvar, func in mod.functions_items() if gvar not in functions}
    text = IRModule({**functions, **prims}).script()
    text = re.sub(r"\n    @T\.prim_func.*?(?=\n    @|\Z)", "", text, flags=re.DOTALL)
    text = re.sub(_DEFAULTS, "", text)
    text = re.sub(r"^#.*(?:\n|\Z)|^ *# from .*\n|^from .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r'metadata\["[\w.]+"\]\[(\d+)\]', r"constant_\1", text)
    more = [f"# and {len(prims)} PrimFuncs: {', '.join(sorted(g.name_hint for g in prims))}"] if prims else []
    if "external_mods" in (mod.attrs or {}):
        more.append(f"# and {len(mod.attrs['external_mods'])} runtime module in external_mods")
    return "\n".join([_NOT_RUN, "```python", text.strip(), *more, "```"])


def _facts(mod: IRModule) -> Iterator[str]:
    """The attributes of ``main`` in words, line by line."""
    main = mod["main"]
    if CANDIDATES.on(main):
        costs = COSTS.read(main) if COSTS.on(main) else None
        yield "`collage.candidates`" + (" with `collage.costs`:" if costs else ":")
        yield ""
        for each in CANDIDATES.read(main):
            cost = f", {1e6 * (costs.of(each.id).seconds or 0):g} us" if costs else ""
            yield f"* {each.backend} `{each.label}`, bindings {', '.join(map(str, each.indexes))}{cost}"
    elif PLAN.on(main):
        plan = PLAN.read(main)
        yield "`collage.plan`:"
        yield ""
        for kernel in plan.kernels:
            made = f"{kernel.backend} `{kernel.label}` as `{kernel.function}`"
            yield f"* {made}, bindings {', '.join(kernel.bindings)}, {1e6 * kernel.seconds:g} us"


def main(arguments: list[str]) -> int:
    """Write or check the page; returns the exit code."""
    text = page()
    if arguments == ["--check"]:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
