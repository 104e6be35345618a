"""Run a notebook in place, as a new reader would: ``make notebook``. Needs the extra docs.

Outputs that change with every run and carry no information are left out: times of execution, bars of finished
progress. The exit code is 1, with one line, where a cell fails or prints too much.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

MOST_BYTES = 100_000
"""The most bytes of all outputs of a notebook: it is also read in the repository."""


def executed(path: Path) -> Any:
    """The notebook in ``path`` with new outputs; its cells run in its folder."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.metadata, cell.id = {}, f"cell-{number}"
        if cell.cell_type == "code":
            cell.outputs = [_kept(output) for output in cell.outputs if not _is_empty(output)]
    return notebook


def _is_empty(output: Any) -> bool:
    """Whether an output shows nothing, such as a finished bar."""
    return output.output_type == "display_data" and output.data.get("text/html") == ""


def _kept(output: Any) -> Any:
    output.pop("metadata", None)
    output.pop("transient", None)
    if output.output_type in ("display_data", "execute_result"):
        output.metadata = {}
        if "text/html" in output.data:  # the text for terminals says the same
            output.data = {"text/html": output.data["text/html"], "text/plain": ""}
    return output


def nbytes(notebook: Any) -> int:
    """The size of all outputs."""
    return sum(len(str(cell.outputs)) for cell in notebook.cells if cell.cell_type == "code")


def main(path: Path) -> str | None:
    """Run and write the notebook; returns what is wrong with it."""
    try:
        notebook = executed(path)
    except CellExecutionError as error:
        return f"{path}: a cell fails: {error.ename}: {error.evalue}"
    if (size := nbytes(notebook)) > MOST_BYTES:
        return f"{path}: its outputs are {size} bytes, and {MOST_BYTES} are allowed"
    nbformat.write(notebook, path)
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
