"""Hooks of MkDocs for this repository: which files are pages, and where their links lead.

Pages link to each other and to sources as the repository has them (``../examples/backend``), so a link that works here
works in the site. A source that a page links to becomes a page of its own, a folder a list of its files.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
BESIDE_DOCS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md")
"""Pages that are not below docs/."""
LANGUAGES = {".py": "python", ".cc": "cpp", ".h": "cpp", ".toml": "toml", ".sh": "bash"}
"""Sources that are shown as pages, by suffix; other files are copied."""
NOTEBOOK = ".ipynb"
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"

_FENCED = r"^(?P<fence>```+).*?^(?P=fence)"
_LINK = re.compile(
    rf"{_FENCED}|(?<=\]\()(?!\w+:|#|/)(?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=\))", re.MULTILINE | re.DOTALL
)
"""A link within this repository; or a block of code, where nothing is a link."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """All pages under their paths in the repository, and whatever they link to."""
    docs = [f"docs/{file.src_uri}" for file in files if (ROOT / "docs" / file.src_uri).is_file()]
    others = [file for file in files if not (ROOT / "docs" / file.src_uri).is_file()]
    found = {path: _of_repository(path, config) for path in (*BESIDE_DOCS, *docs)}
    waiting = [path for path in found if path.endswith(".md")]
    while waiting:
        page = waiting.pop()
        for target in sorted(_linked(page, found[page].content_string)):
            uri = _shown_as(target)
            if uri not in found and (ROOT / target).exists():
                found[uri] = _made(target, uri, config)
                waiting += [uri] if uri.endswith(".md") else []
    return Files([*found.values(), *others])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to folders and sources lead to their pages."""
    folder = posixpath.dirname(page.file.src_uri)

    def mended(found: re.Match[str]) -> str:
        if found["path"] is None:
            return found[0]
        shown = _shown_as(posixpath.normpath(posixpath.join(folder, found["path"])))
        return posixpath.relpath(shown, folder or ".") + (found["anchor"] or "")

    return _LINK.sub(mended, markdown)


def _of_repository(path: str, config: MkDocsConfig) -> File:
    """A file of the repository; what is below docs/ is at the top of the site."""
    file = File(path, str(ROOT), config.site_dir, config.use_directory_urls)
    if path.startswith("docs/") and path != "docs/README.md":
        file.dest_uri = file.dest_uri.removeprefix("docs/")
    return file


def _linked(page: str, markdown: str) -> set[str]:
    """What a page links to, as paths in the repository."""
    folder = posixpath.dirname(page)
    paths = (found["path"] for found in _LINK.finditer(markdown))
    targets = {posixpath.normpath(posixpath.join(folder, path)) for path in paths if path is not None}
    return {target for target in targets if not target.startswith("..")}


def _shown_as(target: str) -> str:
    """The path of the page that shows a file or folder."""
    path = ROOT / target
    if path.is_dir():
        return f"{target}/README.md" if (path / "README.md").exists() else f"{target}/index.md"
    return f"{target}.md" if path.suffix in (*LANGUAGES, NOTEBOOK) else target


def _made(target: str, uri: str, config: MkDocsConfig) -> File:
    """A folder as a list, a source or a notebook as a page, or the file itself."""
    path = ROOT / target
    if uri == target or uri.endswith("/README.md"):
        return _of_repository(uri, config)
    if path.suffix == NOTEBOOK:
        return File.generated(
            config, uri, content=notebook_page(json.loads(path.read_text(encoding="utf-8")))
        )
    if path.is_dir():
        shown = [f for f in sorted(path.iterdir()) if f.is_dir() or f.suffix in LANGUAGES]
        names = [f.name for f in shown if f.name != "__pycache__" and not f.name.startswith(".")]
        text = "\n".join(f"* [`{name}`]({name})" for name in names)
    else:
        text = f"````{LANGUAGES[path.suffix]}\n{path.read_text(encoding='utf-8')}\n````"
    content = f"{UNSEARCHED}# `{target}`\n\n{text}\n"
    return File.generated(config, uri, content=content)


def notebook_page(notebook: dict[str, Any]) -> str:
    """The cells of a notebook and their outputs, as they are stored in it, as Markdown."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts += [source] if cell["cell_type"] == "markdown" else [f"```python\n{source}\n```"]
        parts += [_output(output) for output in cell.get("outputs", ())]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if html := "".join(data.get("text/html", ())):
        lines = [
            line for line in html.splitlines() if line.strip()
        ]  # an empty one would end the HTML in Markdown
        return "\n".join(['<div class="output">', *lines, "</div>"])
    return "```\n" + "".join(data.get("text/plain") or output.get("text", "")).rstrip() + "\n```"
