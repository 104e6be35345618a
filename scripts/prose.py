"""Checks the prose of documents and docstrings: spelling aside, the rules of proselint, and those of this project.

    python scripts/prose.py            # all documents, and the docstrings of the package
    python scripts/prose.py FILE...    # these

Each finding is a line, and the exit code is 1 if there is one. Needs the extra dev. proselint is a plain package with
its rules in it. The PyPI package of Vale downloads a program when it first runs, and its styles at each sync.
"""

from __future__ import annotations

import ast
import re
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]

MOST_WORDS = 25
"""The longest sentence: a longer one is usually two."""

LEFT_OUT = ("docs/passes.md", "docs/backends.md")
"""Pages of TVMScript and of tables that commands write."""

_OFF = ("typography", "spelling", "restricted", "dates_times", "annotations", "redundancy.ras_syndrome")
"""Groups of proselint's rules that do not fit: curly quotes, American or British spelling, and dates in tables."""

WORDS = {
    r"dear(?:er|est)?": "expensive, costs more",
    r"priced?s?|pricing": "cost, measured",
    r"contests?|entrants?": "comparison, candidate program",
    r"ticks?|clocked": "per-kernel profile, instrumented",
    r"second looks?": "recheck",
    r"circumstances|surroundings": "fingerprint fields, process environment",
    r"takes? back|taken back": "cancelling",
    r"harmless inputs": "dummy inputs",
    r"anew": "again",
    r"nobody|somebody|whoever": "another user, no operator: these words are for people",
    r"so many": "the name of the number",
    r"(?:which|that|it|they|written) (?:is|are) no (?:errors?|files?|inputs?|multiples?|kernels?|vectors?)": "is not a",
    r"does without|do without": "does not need",
    r"brings? to rest|comes? to rest|goes by": "terminates, depends on",
    r"worth the name|for want of|all the same|by so much|in vain|as ever": "a plain word: this is an idiom",
}
"""Words that are not used here, as patterns, and what is written in their place."""

_TERMS = re.compile(r"for free|multiply-adds?|re-entrant|(\w) +\1", re.IGNORECASE)
"""Findings of proselint that are terms here, or formulas."""

_CODE, _BREAK = "\N{MIDDLE DOT}", "\N{BROKEN BAR}"
"""The marks for code, which is part of a sentence, and for breaks between sentences."""

_QUOTES = re.compile('["\u201c\u201d]')


class Finding(NamedTuple):
    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text}"


def of_markdown(text: str) -> str:
    """The prose of a document, on the lines that it has there."""
    text = re.sub(r"^( *)(```|~~~).*?^\1\2", _broken, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->|<[^<>\n]+>", _broken, text, flags=re.DOTALL)
    text = re.sub(r"(?<=\])\([^()\s]*(?: \"[^\"]*\")?\)", _coded, text)
    return _parted(text)


def of_python(text: str) -> str:
    """The docstrings of a module, those of attributes among them, on the lines that they have there."""
    lines, found = text.splitlines(), [""] * (text.count("\n") + 1)
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            continue
        if isinstance(node.value.value, str):
            is_example = False
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                line = lines[number]
                is_example = bool(line.strip()) and (is_example or line.lstrip().startswith(">>>"))
                is_row = re.search(r"\S {3,}\S.* {3,}\S", line) is not None
                is_code = is_example or is_row or len(line) - len(line.lstrip()) >= node.col_offset + 4
                found[number] = "" if is_code else line.replace('"""', "   ")
    return _parted("\n".join(found))


def _parted(text: str) -> str:
    """The text with marks in place of code and of breaks between sentences."""
    text = re.sub(r"(`+)(?:(?!\n\s*\n).)+?\1", _coded, text, flags=re.DOTALL)
    text = re.sub(r"^[ \t]*(?:[*+-]|\d+\.|#+|>)\s", _broken, text, flags=re.MULTILINE)
    text = re.sub(r"[*\[\]]", " ", text.replace("|", _BREAK))
    return re.sub(r"^[ \t]*$", _BREAK, text, flags=re.MULTILINE)


def _coded(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", _CODE, match[0])


def _broken(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", _BREAK, match[0])


def long_sentences(prose: str) -> Iterator[tuple[int, int]]:
    """The line on which each sentence of more than ``MOST_WORDS`` words begins, and how many it has."""
    for match in re.finditer(rf"[^\s{_BREAK}](?:[^.!?:;{_BREAK}]|[.!?:;](?=\S))*", prose):
        words = len(match[0].split())
        if words > MOST_WORDS:
            yield prose.count("\n", 0, match.start()) + 1, words


def prose_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return of_python(text) if path.suffix == ".py" else of_markdown(text)


def findings(paths: Sequence[Path]) -> Iterator[Finding]:
    """The findings in these files. proselint gets them as one text, since its rules take long to start."""
    from proselint.tools import LintFile

    texts = [prose_of(path) for path in paths]
    for path, text in zip(paths, texts, strict=True):
        for line, words in long_sentences(text):
            yield Finding(path, line, f"a sentence of {words} words: make two of it (at most {MOST_WORDS})")
    starts = list(accumulate((text.count("\n") + 1 for text in texts), initial=0))
    config: Any = {"max_errors": 1000, "checks": _enabled()}
    # proselint passes over all that is quoted; behind one odd mark that would be every other passage of all files.
    file = LintFile("all", _QUOTES.sub(_CODE, "\n".join(texts)))
    for found in file.lint(config):
        line, said = found.pos[0] - 1, found.check_result
        if _TERMS.search(file.content, said.span[0] - 3, said.span[1] + 3):
            continue
        which = bisect_right(starts, line) - 1
        yield Finding(paths[which], line - starts[which] + 1, f"{said.message} ({said.check_path})")


def _enabled() -> dict[str, bool]:
    from proselint.config import DEFAULT

    return {name: is_on for name, is_on in DEFAULT["checks"].items() if name not in _OFF} | {"house": True}


def register() -> None:
    """Register proselint's own rules and those of this project."""
    from proselint.checks import __register__
    from proselint.registry import CheckRegistry
    from proselint.registry.checks import Check
    from proselint.registry.checks.types import Existence

    house = (
        Check(check_type=Existence(items=(pattern,)), path="house.words", message=f"'{{}}': write {better}")
        for pattern, better in WORDS.items()
    )
    CheckRegistry().register_many((*__register__, *house))


def everything() -> Iterator[Path]:
    """All documents, and all files with docstrings that users read."""
    pages = (
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "THIRD_PARTY.md",
        "changelog.d/*.md",
        "docs/**/*.md",
    )
    patterns = (*pages, "benchmarks/README.md", "unity_collage/**/*.py")
    paths = chain.from_iterable(sorted(ROOT.glob(pattern)) for pattern in patterns)
    return (path for path in paths if str(path.relative_to(ROOT)) not in LEFT_OUT)


def main(names: list[str]) -> int:
    register()
    paths = [Path(name).resolve() for name in names] or list(everything())
    found = sorted(findings(paths))
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
