"""The report of a large plan in Chromium: how long until it is painted, and until a click has been drawn.

    python benchmarks/report_page.py [--kernels 5000] [--clicks 25] [--file report.html]

The plan is a chain of kernels that all differ. Every third kernel has a second reader, so no block is folded. *Far* is
a click in a picture that shows all kernels: the page then goes near the chosen one. *Near* is a click on a kernel in
sight, and *jump* is a link to another place. A click ends with the frame after it. ``--file`` opens another report.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from unity_collage.plan.explanation import (
    ExplainedBinding,
    ExplainedCandidate,
    ExplainedCost,
    ExplainedKernel,
    Explanation,
    Proof,
    Verdict,
)
from unity_collage.report.html import html_report

ACTS = {
    "jump": "location.hash = address(kernels[(turn * 397 + 613) % kernels.length])",
    "far": """
        const window_ = svg.getBoundingClientRect(), box = places.get((turn * 211 + 707) % kernels.length);
        const x = window_.left + view.x + view.scale * box.x, y = window_.top + view.y + view.scale * box.y;
        svg.dispatchEvent(new MouseEvent('click', {clientX: x, clientY: y, bubbles: true, cancelable: true}))""",
    "near": """
        const sight = [...boxes.values()];
        const event = new MouseEvent('click', {bubbles: true, cancelable: true});
        sight[(turn * 5 + 3) % sight.length].dispatchEvent(event)""",
}
"""By name, what is timed as JavaScript; ``turn`` counts."""

MEASURE = """
<script>
(async () => {
  const later = (ms) => new Promise((go) => setTimeout(go, ms));
  const drawn = () => new Promise((go) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = go;
    channel.port2.postMessage(0);
  }));
  await later(1500);
  const paint = performance.getEntriesByName('first-contentful-paint')[0].startTime;
  const acts = {@ACTS@}, found = {paint: [paint], loaded: [performance.getEntriesByType('navigation')[0].loadEventEnd]};
  for (const [name, act] of Object.entries(acts)) {
    found[name] = [];
    for (let turn = 0; turn < @CLICKS@; turn++) {
      if (name === 'far') fit();
      await later(150);
      const begin = performance.now(), old = location.hash;
      act(turn);
      if (location.hash !== old) await new Promise((go) => addEventListener('hashchange', go, {once: true}));
      await drawn();
      found[name].push(performance.now() - begin);
    }
  }
  await fetch('/', {method: 'POST', body: JSON.stringify(found)});
})();
</script>
"""


def main() -> None:
    options = _options()
    page = (
        options.file.read_text("utf-8")
        if options.file
        else html_report("chain", {"main": chain(options.kernels)})
    )
    for name, times in measured(page, options.clicks).items():
        ordered = sorted(times)
        p90 = ordered[int(0.9 * (len(ordered) - 1))]
        print(
            f"{name:8} median {statistics.median(times):6.0f} ms, 90th percentile {p90:6.0f} ms, of {len(times)}"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", type=int, default=5000)
    parser.add_argument("--clicks", type=int, default=25)
    parser.add_argument("--file", type=Path)
    return parser.parse_args()


def chain(number: int) -> Explanation:
    """This many kernels, all different."""
    reads: list[Sequence[int]] = [(), *((i - 1,) if i % 3 else (i - 1, i - 3) for i in range(1, number))]
    return Explanation(
        Proof(1.0, 1.0, 0.0, True, "exact"),
        tuple(ExplainedBinding(f"v{i}", "relax.op", "float32 (1, 8)") for i in range(number)),
        tuple(ExplainedKernel(i, f"f{i}", tuple(before)) for i, before in enumerate(reads)),
        tuple(ExplainedCandidate(i, "tvm", "r", "op", (i,), i, Verdict.CHOSEN) for i in range(number)),
        tuple(ExplainedCost(f"c{i}", 1e-4) for i in range(number)),
    )


def measured(page: str, clicks: int) -> Mapping[str, list[float]]:
    """Milliseconds of each act in a browser that opens ``page``."""
    browser = shutil.which("chromium")
    if browser is None:
        sys.exit("chromium is missing: apt-get install chromium")
    acts = ", ".join(f"{name}: (turn) => {{ {act}; }}" for name, act in ACTS.items())
    script = MEASURE.replace("@ACTS@", acts).replace("@CLICKS@", str(clicks))
    body = page.replace("default-src 'none';", "connect-src 'self';", 1).replace(
        "</body>", f"{script}</body>", 1
    )
    answers: list[Mapping[str, list[float]]] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/" else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(body.encode() if self.path == "/" else b"")

        def do_POST(self) -> None:
            answers.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing of what is asked for is printed."""

    with HTTPServer(("127.0.0.1", 0), Page) as server, tempfile.TemporaryDirectory() as profile:
        address = f"http://127.0.0.1:{server.server_port}/"
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"]
        with subprocess.Popen(
            [*command, f"--user-data-dir={profile}", address], stderr=subprocess.DEVNULL
        ) as process:
            while not answers and process.poll() is None:
                server.timeout = 1.0
                server.handle_request()
            process.kill()
    if not answers:
        sys.exit("chromium ended without an answer")
    return answers[0]


if __name__ == "__main__":
    main()
