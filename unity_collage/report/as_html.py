"""Tables for a terminal as HTML for notebooks: the same cells, so no figure is computed twice."""

from __future__ import annotations

import html

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

_CELL = "text-align: {0}; vertical-align: top; padding: .15em .6em; {1}"


def as_html(shown: RenderableType) -> str:
    """What ``rich`` would print, as paragraphs and tables without colours: they fit the notebook's own theme."""
    if isinstance(shown, Group):
        return "\n".join(filter(None, map(as_html, shown.renderables)))
    if isinstance(shown, Table):
        return _table(shown)
    if isinstance(shown, (str, Text)):
        text = _inline(shown)
        return f'<div style="margin: .2em 0">{text}</div>' if text else ""
    raise TypeError(f"no HTML is known for {type(shown).__name__}")


def preformatted(text: str) -> str:
    """Source text as it is."""
    return f"<pre>{html.escape(text)}</pre>"


def _table(table: Table) -> str:
    columns = table.columns
    rows = [
        "".join(map(_cell, columns, row)) for row in zip(*(column.cells for column in columns), strict=True)
    ]
    titles = "".join(_cell(column, column.header, "th") for column in columns)
    thead = f"<thead><tr>{titles}</tr></thead>" if table.show_header else ""
    caption = f"<div><small>{_inline(table.caption)}</small></div>" if table.caption else ""
    body_rows = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<table style="margin: .4em 0">{thead}<tbody>{body_rows}</tbody></table>{caption}'


def _cell(column: Column, content: RenderableType, tag: str = "td") -> str:
    """A cell; in a notebook, too, only columns that a terminal would cut get narrower."""
    side = "right" if column.justify == "right" else "left"
    narrows = column.overflow == "ellipsis" and side == "left"
    breaks = "overflow-wrap: anywhere; min-width: 6em" if narrows else "white-space: nowrap"
    return f'<{tag} style="{_CELL.format(side, breaks)}">{_inline(content)}</{tag}>'


def _inline(content: RenderableType) -> str:
    """A text with markup; of its styles only bold is kept."""
    text = content if isinstance(content, Text) else Text.from_markup(str(content))
    bold = [(span.start, span.end) for span in text.spans if span.style == "bold"]
    parts, before = [], 0
    for start, end in bold:
        parts += [html.escape(text.plain[before:start]), f"<b>{html.escape(text.plain[start:end])}</b>"]
        before = end
    return "".join([*parts, html.escape(text.plain[before:])])
