"""``unity-collage diff``: the plans of two programs side by side."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..lowering.library_file import write
from .as_json import add_json, print_json
from .exit_codes import UsageError
from .files import check_overwritten, check_written
from .mistakes import check_options
from .option_types import positive
from .options import add_memory_limit, add_no_measure, add_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..plan.plan import Plan

_PAGE = ".html"

ROWS = 20
"""How many differences are shown."""


def add_command(commands: Any) -> None:
    """Add ``diff`` to ``commands``."""
    text = "show the plans of two programs side by side: after an upgrade, of two machines, of two precisions"
    command = commands.add_parser(
        "diff",
        help=text,
        description=f"{text.capitalize()}. Kernels are compared by the values of the model that they compute. Models "
        "are compiled with the options of compile; saved programs and plans are read as they are.",
    )
    what = (
        "a saved program (.so), a report (.json), a partitioned module (.py), or a model (.onnx, .pt2, .pt)"
    )
    command.add_argument("first", metavar="FIRST", help=f"{what}, which is compiled")
    command.add_argument(
        "second",
        metavar="SECOND",
        nargs="?",
        help="the program, report, module or model to compare it with (default: the model FIRST again)",
    )
    add_options(command, model=False)
    add_no_measure(command)
    add_memory_limit(command)
    for which in ("first", "second"):
        command.add_argument(
            f"--{which}-options",
            metavar="'OPTIONS'",
            default="",
            help=f"more options of compile, for the {which} model alone, such as "
            f"--{which}-options='--precision bf16'",
        )
    command.add_argument(
        "--rows",
        type=positive,
        default=ROWS,
        metavar="N",
        help=f"how many differences are shown, the largest first (default: {ROWS})",
    )
    command.add_argument("--report", metavar="FILE.html", help="write a page with all differences")
    add_json(command)
    # Its options are for either model, and checked with those that the model has alone.
    command.set_defaults(run=_diff, check=check_overwritten)


def _diff(options: argparse.Namespace) -> None:
    """Read or compile both, compare, show and write. What can be wrong is found before anything is compiled."""
    from ..inspection.plan_diff import diff
    from ..report.difference import difference_data, difference_summary
    from ..report.difference_page import difference_page
    from .console import Output

    given = _given(options)
    check_written("--report", options.report, (_PAGE,))
    found = diff(*_plans(given), names=_names(given))
    if options.report:
        write(Path(options.report), difference_page(found).encode())
    if options.json:
        print_json({**difference_data(found), "wrote": [options.report] if options.report else []})
        return
    console = Output()
    console.print(difference_summary(found, options.rows, console.width), highlight=False)
    if options.report:
        console.say(f"wrote {options.report}")


def _given(options: argparse.Namespace) -> list[tuple[str, argparse.Namespace | None]]:
    """Both paths, and for a model the options of ``compile``; raises UsageError for what cannot be compared."""
    if options.second is None and not _is_model(options.first):
        raise UsageError(f"{options.first} is not a model: give a second file to compare it with")
    paths = {"first": options.first, "second": options.second or options.first}
    more = {which: getattr(options, f"{which}_options") for which in paths}
    for which, path in paths.items():
        if more[which] and not _is_model(path):
            raise UsageError(f"--{which}-options are for a model, and {path} is not one: leave them out")
    if not any(map(_is_model, paths.values())) and (given := _given_to_compile(options)) is not None:
        raise UsageError(
            f"--{given} is for models, which are compiled, and neither file is one: leave it out"
        )
    if options.second is None and more["first"] == more["second"]:
        raise UsageError(
            "both are one model with the same options: add --second-options='--precision bf16', or name another file"
        )
    return [
        (path, _asked(path, _words(which, more[which]), options) if _is_model(path) else None)
        for which, path in paths.items()
    ]


def _is_model(path: str) -> bool:
    from ..inspection.plan_diff import MODELS

    return Path(path).suffix in MODELS


def _words(which: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--{which}-options={text!r} cannot be read: {error}") from error


def _asked(path: str, words: Sequence[str], options: argparse.Namespace) -> argparse.Namespace:
    """The options of ``compile`` for one model: those of both, then its own."""
    from .settings import check_backends

    parser = _parser_of_compile()
    for action in parser._actions:
        if action.option_strings:
            action.default = argparse.SUPPRESS
    own = parser.parse_args(list(words))
    both = {**vars(options), **vars(own), **_sizes(options, own)}
    asked = argparse.Namespace(**{**both, "model": path, "said": " ".join(words)})
    check_options(asked)
    check_backends(asked)
    return asked


def _sizes(options: argparse.Namespace, own: argparse.Namespace) -> dict[str, list[tuple[str, Any]]]:
    """The sizes for both models, but those that a model's ``own`` options give take their place, by name."""
    more = {option: getattr(own, option, []) for option in ("shape", "dim")}
    names = {name for pairs in more.values() for name, _ in pairs}
    return {
        option: [*(pair for pair in getattr(options, option) if pair[0] not in names), *pairs]
        for option, pairs in more.items()
    }


def _given_to_compile(options: argparse.Namespace) -> str | None:
    """The first option of ``compile`` that is not as it is by default, if there is one."""
    usual = vars(_parser_of_compile().parse_args([]))
    changed = (name for name, value in usual.items() if name != "threads" and vars(options)[name] != value)
    return next((name.replace("_", "-") for name in changed), None)


def _parser_of_compile() -> argparse.ArgumentParser:
    from .parser import PROGRAM, Parser

    parser = Parser(prog=f"{PROGRAM} compile", add_help=False)
    add_options(parser, model=False)
    add_no_measure(parser)
    add_memory_limit(parser)
    return parser


def _names(given: Sequence[tuple[str, argparse.Namespace | None]]) -> tuple[str, str]:
    """What the two are called: their files, with the options of a model; whole paths where the names are the same."""
    said = ["" if asked is None else asked.said for _, asked in given]
    short = [f"{Path(path).name} {words}".strip() for (path, _), words in zip(given, said, strict=True)]
    whole = [f"{path} {words}".strip() for (path, _), words in zip(given, said, strict=True)]
    names = whole if short[0] == short[1] else short
    return names[0], names[1]


def _plans(given: Sequence[tuple[str, argparse.Namespace | None]]) -> list[Mapping[str, Plan]]:
    """The plans of both. Files with plans are read before a model is compiled."""
    from ..inspection.plan_diff import plans_given

    read = {path: plans_given(path) for path, asked in given if asked is None}
    return [read[path] if asked is None else _compiled(asked) for path, asked in given]


def _compiled(asked: argparse.Namespace) -> Mapping[str, Plan]:
    """The plans of the program that a model is compiled to."""
    from .. import runtime
    from .compiling import compiled

    before = runtime.num_threads()
    if asked.threads is not None:
        runtime.set_num_threads(asked.threads)
    try:
        return compiled(asked).plan or {}
    finally:
        runtime.set_num_threads(before)
