"""The code in all documents: Python is valid and names what there is, and the command line takes its commands."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

import pytest
from documents import PAGES, ROOT, Block, blocks_of

import unity_collage as uc
from unity_collage import rules
from unity_collage.cli.main import parser_of

BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def place(block: Block) -> str:
    return f"{block.page}:{block.line}"


def in_language(name: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == name]


def commands(block: Block) -> Iterator[list[str]]:
    """The arguments of each ``unity-collage`` in a block."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.replace("--target cuda", ""), comments=True)  # it asks for a GPU
        if words[:1] == ["unity-collage"]:
            yield list(takewhile(lambda word: word not in ("|", ">", "<", ">>", "&&"), words[1:]))


def named(tree: ast.AST) -> Iterator[str]:
    """The names behind ``uc.`` in a block."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "uc":
            yield node.attr


def calls(tree: ast.AST) -> Iterator[tuple[Callable[..., Any], ast.Call]]:
    """The calls of ``uc.NAME`` in a block."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        function = getattr(uc, node.func.attr, None)
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "uc" and callable(function):
            yield function, node


def test_there_is_code_to_check() -> None:
    assert len(in_language("python")) > 20 and len(in_language("bash")) > 20
    assert {block.language for block in BLOCKS} <= {"", "python", "bash", "json", "dockerfile", "toml"}


@pytest.mark.parametrize("block", [b for b in in_language("python") if b.reason is None], ids=place)
def test_python_is_valid_and_names_what_there_is(block: Block) -> None:
    tree = ast.parse(block.text)
    assert set(named(tree)) <= set(uc.__all__)
    for function, call in calls(tree):
        keywords = {word.arg: None for word in call.keywords if word.arg}
        inspect.signature(function).bind_partial(*call.args, **keywords)


@pytest.mark.parametrize("block", [b for b in in_language("bash") if any(commands(b))], ids=place)
def test_the_command_line_takes_a_command(block: Block) -> None:
    for arguments in commands(block):
        parser_of().parse_args(arguments)


def test_a_block_that_is_not_run_says_why() -> None:
    marks = sum(len(re.findall(r"^ *<!-- not run", (ROOT / page).read_text(), re.M)) for page in PAGES)
    assert marks == sum(block.reason is not None for block in BLOCKS)


def test_the_reference_has_every_public_name() -> None:
    text = "\n".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    shown = set(re.findall(r"^::: unity_collage\.(\S+)", text, re.M))
    passes = {f"passes.{home(value)}" for value in vars(uc.passes).values() if inspect.isclass(value)}
    others = {name for name in uc.__all__ if name not in ("backends", "passes")}
    assert passes | others | {f"rules.{name}" for name in rules.__all__} <= shown


def home(value: type) -> str:
    """The name of the module of a class."""
    return value.__module__.rpartition(".")[2]
