#!/usr/bin/env bash
# On a bare machine (Debian 12, Python 3.11, g++): install what the tests need in a fresh virtual environment, run them.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 -m venv --clear .venv-test
.venv-test/bin/pip install --quiet ".[${EXTRAS:-test}]"
exec .venv-test/bin/pytest "$@"
