#!/usr/bin/env bash
# On a bare machine (Debian 12, Python 3.11, g++): install in a fresh virtual environment, compile and run a model.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "Installing in .venv; the runtime is built in C++, which takes minutes."
python3 -m venv .venv
.venv/bin/pip install .
.venv/bin/python examples/onnx_model.py "$@"
