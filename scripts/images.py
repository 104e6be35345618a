"""Screenshots of the pages for the documents: ``make images``. Needs chromium, and the zoo of benchmarks/.

usage: images.py FOLDER [MODEL.onnx]

The model, by default ResNet-50 of the zoo, is compiled by our backends, with Winograd's algorithm and without it. The
times in the pictures are those of this machine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import onnx

import unity_collage as uc
from unity_collage.report.difference_page import difference_page
from unity_collage.report.html import html_report

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
import zoo_models

BACKENDS = ("onednn", "openblas", "kernels", "tvm")
DARK = ("--blink-settings=preferredColorScheme=0",)
WINDOW = "1400,1000"


def pages(model: Any, title: str, folder: Path) -> tuple[Path, Path, str]:
    """The report and the comparison as files, and the part of an address that names the most expensive kernel."""
    first, second = (
        uc.compile(model, backends=BACKENDS, explain=winograd, allow_winograd=winograd, progress=True)
        for winograd in (True, False)
    )
    report, comparison = folder / "report.html", folder / "diff.html"
    plans = first.plan or {}
    report.write_text(html_report(title, first.explanation or {}, plans=plans), encoding="utf-8")
    names = (title, f"{title} --no-winograd")
    comparison.write_text(difference_page(uc.diff(first, second, names=names)), encoding="utf-8")
    kernel = max(plans["main"].kernels, key=lambda kernel: kernel.seconds)
    return report, comparison, f"#main:{quote(kernel.bindings[-1])}"


def screenshots(report: Path, comparison: Path, chosen: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Name, address, and more options of each picture."""
    yield "report.png", report.as_uri(), ()
    yield "report_kernel_dark.png", report.as_uri() + chosen, DARK
    yield "diff.png", comparison.as_uri(), ()


def taken(browser: str, path: Path, address: str, profile: str, more: tuple[str, ...]) -> None:
    """Write the picture of a page to ``path``."""
    # Chromium's sandbox does not work for root in a container, and the pages are ours.
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *more]
    options += [f"--user-data-dir={profile}", "--virtual-time-budget=3000", f"--window-size={WINDOW}"]
    command = [browser, *options, f"--screenshot={path}", address]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def main(arguments: list[str]) -> str | None:
    """Make all pictures; returns the reason if that is not possible."""
    if not arguments:
        return "name a folder for the pictures"
    browser = shutil.which("chromium")
    if browser is None:
        return "chromium is missing: apt-get install chromium"
    target = Path(arguments[0])
    target.mkdir(parents=True, exist_ok=True)
    title = Path(arguments[1]).name if arguments[1:] else "resnet50.onnx"
    model = onnx.load(arguments[1]) if arguments[1:] else zoo_models.load("resnet50")
    with TemporaryDirectory() as folder:
        for name, address, more in screenshots(*pages(model, title, Path(folder))):
            taken(browser, target / name, address, f"{folder}/profile", more)
            print(f"wrote {target / name}")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
