"""The site of the documentation: built as ``make site`` does, opened in a browser that loads from nowhere else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEW, OLD = "9.9.9", "0.0.1"
"""The versions that the folder of sites has: the one that is built here, and one from before."""
PATIENCE = 60
"""Seconds that the browser has for a page and what it looks for."""

HELD, REACHED = "/held.svg", "/reached"
WATCH = f"""
<meta http-equiv="Content-Security-Policy"
      content="default-src 'self' 'unsafe-inline' data:; worker-src 'self' blob:">
<script>
  const root = document.documentElement.dataset;
  addEventListener("securitypolicyviolation", (event) => root.blocked = event.blockedURI);
  const told = setInterval(() => {{
    if (!document.querySelector("WANTED")) return;
    clearInterval(told);
    fetch("{REACHED}");
  }}, 50);
</script>
"""
"""Put into a page: it says what it wanted from other hosts, and tells the server when it shows what is WANTED."""


class Site(SimpleHTTPRequestHandler):
    """The built site. A page is loaded only when it shows what is wanted, so the browser waits for that."""

    wanted = "h1"
    is_reached = threading.Event()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == REACHED:
            self.is_reached.set()
        if path == HELD:
            self.is_reached.wait(PATIENCE)
        if path.endswith("/"):
            self._send(self._watched(Path(self.directory) / path[1:] / "index.html"), "text/html")
        elif path in (HELD, REACHED):
            self._send("<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml")
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        """Nothing is written to standard error."""

    def _watched(self, path: Path) -> str:
        text = path.read_text(encoding="utf-8")
        text = text.replace("<head>", "<head>" + WATCH.replace("WANTED", self.wanted), 1)
        return text.replace("</body>", f"<img src='{HELD}' alt=''></body>", 1)

    def _send(self, text: str, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture(scope="module")
def site(mkdocs: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site; a broken link or anchor, or a page that is not in the navigation, fails the build."""
    folder = tmp_path_factory.mktemp("sites")
    (folder / OLD).mkdir()
    (folder / OLD / "index.html").write_text("<html><head></head><body><h1>The old site</h1></body></html>")
    command = [sys.executable, "scripts/versioned_site.py", NEW, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / NEW


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """Where the site is served, in the folder of all versions."""
    Site.is_reached.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Site, directory=str(site.parent)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/{NEW}"
    Site.is_reached.set()
    server.shutdown()
    thread.join()
    server.server_close()


def opened(browser: str, address: str, profile: Path, wanted: str) -> str:
    """The page as the browser has it once the selector ``wanted`` is there."""
    Site.wanted = wanted
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"--user-data-dir={profile}"]
    command = [browser, *options, address]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout


def root_of(dom: str) -> str:
    """The first tag of a page, where ``WATCH`` writes."""
    return dom[dom.index("<html") :].split(">")[0]


def pages_of(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def test_the_search_finds_a_word(browser: str, address: str, tmp_path: Path) -> None:
    dom = opened(browser, f"{address}/?q=winograd", tmp_path, ".md-search-result__item")
    assert "data-blocked" not in root_of(dom)
    found = re.findall(r'<a href="([^"]+)" class="md-search-result__link', dom)
    assert any("/kernels/" in unescape(link) for link in found), found


def test_the_menu_of_versions_leads_to_each(browser: str, address: str, tmp_path: Path) -> None:
    dom = opened(browser, f"{address}/first_model/", tmp_path / "new", ".md-version__link")
    assert "data-blocked" not in root_of(dom)
    assert re.findall(r'class="md-version__current"[^>]*>\s*([\w.]+)', dom) == [NEW]
    links = re.findall(r'<a href="([^"]+)" class="md-version__link">\s*([\w.]+)', dom)
    assert [version for _, version in links] == [NEW, OLD]
    Site.is_reached.clear()
    old = opened(browser, links[1][0], tmp_path / "old", "h1")
    assert "The old site" in old


@pytest.mark.parametrize("page", ["first_model/", "api/passes/"])
def test_a_page_needs_no_other_host(browser: str, address: str, tmp_path: Path, page: str) -> None:
    dom = opened(browser, f"{address}/{page}", tmp_path, "article h1")
    assert "data-blocked" not in root_of(dom)


def test_no_page_names_another_host_to_load_from(site: Path) -> None:
    assert len(pages_of(site)) > 40
    for page in pages_of(site):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source|link)\b[^>]*?(?:src|href)=[\"']?(\w+:)?//", text)
        assert not loaded, page
        assert not re.search(r"""@import|url\(["']?(\w+:)?//|class="mermaid""", text), page
    for style in site.rglob("*.css"):
        assert not re.search(r"""@import|url\(["']?(\w+:)?//""", style.read_text(encoding="utf-8")), style


def test_the_index_of_the_search_has_every_page_of_the_navigation(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    words = {entry["location"].partition("#")[0]: "" for entry in index["docs"]}
    for entry in index["docs"]:
        words[entry["location"].partition("#")[0]] += f"{entry['title']} {entry['text']} ".lower()
    assert "winograd" in words["kernels/"]
    assert {"", "first_model/", "deploy/", "bisect/", "whole_models/", "CHANGELOG/"} <= set(words)
    assert "searchpartition" in words["api/passes/"]
