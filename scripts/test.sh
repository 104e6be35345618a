#!/usr/bin/env bash
# On a bare machine (Debian 12, Python 3.11, g++): install what the tests need in a fresh virtual environment, run them.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 -m venv --clear .venv-test
.venv-test/bin/pip install --quiet "${PACKAGE:-.}[${EXTRAS:-test}]"
if [ $# -gt 0 ]; then
  exec .venv-test/bin/pytest "$@"
fi
# Most tests measure nothing and run side by side. Tests marked `alone` run while no other test does. Those marked
# `long` are left to `make check-pages`.
failed=0
.venv-test/bin/pytest --durations 40 --numprocesses auto --dist worksteal -m "not alone" || failed=1
.venv-test/bin/pytest --durations 40 -m "alone and not long" tests/backend tests/unit/test_timing.py || failed=1
exit $failed
