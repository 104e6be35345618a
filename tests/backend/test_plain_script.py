"""A script without ``if __name__ == "__main__":``, as people write it first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import unity_collage as uc
from unity_collage.database.costs import CostDatabase

SCRIPT = """
import onnx.parser
import unity_collage as uc

print("the script runs")
model = onnx.parser.parse_model('''
    <ir_version: 8, opset_import: ["": 13]>
    small (float[8, 16] x, float[16, 4] w) => (float[8, 4] y) { y = MatMul(x, w) }
''')
program = uc.compile(model, backends=["tvm"], database="costs.sqlite", packs=False)
print([remark for remark in program.plan["main"].remarks if "cost" in remark])
"""


def test_it_runs_once_and_its_kernels_are_measured(tmp_path: Path) -> None:
    """Worker processes do not import the script, and find the package in a relative folder of ``PYTHONPATH``."""
    (tmp_path / "script.py").write_text(SCRIPT)
    folder = os.path.relpath(Path(uc.__file__).parents[1], tmp_path)
    given = os.environ.get("PYTHONPATH")
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (given, folder)))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "the script runs\n[]\n", done
    with CostDatabase(tmp_path / "costs.sqlite", read_only=True) as database:
        assert any(cost.seconds for cost in database.costs())
