"""What the documents show is what the benchmarks found."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_tables_of_the_documents_are_those_of_the_results():
    command = [sys.executable, ROOT / "benchmarks" / "figures.py", "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.stderr, found.returncode) == ("", 0)
