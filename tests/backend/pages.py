"""What each page with code takes as given: commands and modules that not everybody has, files, and names in Python."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Page:
    """What is there before the first block of a page runs."""

    needs: tuple[str, ...] = ()
    """Modules and commands; without one of them the page is skipped."""
    models: tuple[str, ...] = ()
    """Files of ``page_models``: the page runs on small stand-ins for the networks that it names."""
    given: str = ""
    """Python that runs before the page, in its namespace."""


ROWS = """
import numpy as np
np.savez("inputs.npz", rows=np.ones((4, 16), "float32"))
"""

RESNET = """
import numpy as np
import unity_collage as uc
image = np.ones((1, 3, 224, 224), "float32")
np.savez("inputs.npz", image=image)
"""

COSTED = """
import unity_collage as uc
import tvm
from unity_collage.measure.measured import MeasuredCost
mod = uc.import_model("resnet50.onnx").mod
steps = [uc.passes.Prepare(), uc.passes.ChannelsLast(), uc.passes.AnnotateCandidates()]
with uc.host_target():
    costed = tvm.transform.Sequential([*steps, uc.passes.EstimateCosts(MeasuredCost())])(mod)
    mod = uc.passes.SearchPartition()(costed)
"""

PAGES = {
    "README.md": Page(
        ("torch", "onnxruntime"),
        ("resnet50.onnx",),
        """
import numpy, torch
import unity_collage as uc
image, mask = torch.ones(1, 3, 224, 224), torch.ones(1, 3, 224, 224)
buffer = numpy.empty((1, 8, 7, 7), "float32")
class Masked(torch.nn.Module):
    def forward(self, image, mask=None):
        return torch.relu(image if mask is None else image * mask)
module = Masked().eval()
torch.jit.save(torch.jit.trace(module, (image,)), "model.pt")
""",
    ),
    "docs/aot.md": Page(
        (),
        ("classifier.onnx",),
        """
import unity_collage as uc
mod, target = uc.import_model("classifier.onnx", shapes={"batch": 4}).mod, uc.host_target()
""",
    ),
    "docs/bisect.md": Page(("onnxruntime",)),
    "docs/command_line.md": Page(),
    "docs/costs.md": Page(
        (),
        ("resnet50.onnx",),
        COSTED
        + """
from pathlib import Path
for name in ("old", "new", "laptop", "server", "a", "b"):
    uc.CostDatabase(f"{name}.sqlite").close()
bash("unity-collage compile resnet50.onnx --report mine.json")
Path("mine.py").write_text(mod.script(show_meta=True))
""",
    ),
    "docs/deploy.md": Page(("g++",)),
    "docs/devices.md": Page(),
    "docs/first_model.md": Page(("torch", "onnxruntime")),
    "docs/models.md": Page(
        ("onnxruntime",),
        ("model.onnx", "classifier.onnx", "encoder.onnx", "detector.onnx", "silero_vad.onnx"),
        ROWS
        + """
import onnx
import unity_collage as uc
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx
mod = from_onnx(onnx.load("model.onnx"), keep_params_in_input=True)
weights = np.ones((16, 8), "float32")
""",
    ),
    "docs/profile.md": Page((), ("resnet50.onnx",), RESNET),
    "docs/proofs.md": Page(
        (),
        ("resnet50.onnx",),
        COSTED
        + """
from pathlib import Path
bash("unity-collage compile resnet50.onnx -o resnet50.so --report plan.json")
Path("before.py").write_text(costed.script(show_meta=True))
Path("after.py").write_text(mod.script(show_meta=True))
""",
    ),
    "docs/refinement.md": Page((), ("resnet50.onnx",), "import unity_collage as uc"),
    "docs/report.md": Page(
        (),
        ("model.onnx", "resnet50.onnx"),
        COSTED
        + """
bash("unity-collage compile model.onnx --shape batch=1 -o old.so --report plan.json")
bash("unity-collage compile model.onnx --shape batch=1 --backends tvm -o new.so")
""",
    ),
    "docs/runtime.md": Page(
        ("g++",),
        ("resnet50.onnx",),
        """
import tvm_ffi
import unity_collage as uc
uc.compile("resnet50.onnx", backends=["onednn", "kernels", "tvm"]).save("resnet50.so")
uc.runtime.load("onednn")
programs_json, blob = '{"programs": []}', b""
""",
    ),
    "docs/whole_models.md": Page(
        ("onnxruntime",),
        ("model.onnx", "own.onnx"),
        "import unity_collage as uc",
    ),
    "docs/why_not.md": Page(),
    "docs/writing_a_backend.md": Page(
        ("setuptools",),
        ("model.onnx",),
        """
from handmade import PATTERNS, codegen, rule, why_not
from unity_collage import Backend
from unity_collage.graph import Limits
from unity_collage.rules import Composite, DFPattern, OnlyValid, OpPredicate, Union
pattern, why_not_call = PATTERNS["multiply_add"](), lambda call: None
""",
    ),
}
"""All pages that have a block which is run, by path."""

LONG = frozenset(f"docs/{name}.md" for name in ("costs", "models", "profile", "refinement", "report"))
"""Pages that are left to ``make check-pages``: each takes from 40 to 90 seconds."""
