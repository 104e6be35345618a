#!/usr/bin/env bash
# Build the wheel for other machines in dist/, with the oldest platform tag that its native libraries allow.
# Needs Python 3.11 or later (tomllib) and g++.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf build/wheel dist/unity_collage-*.whl
python3 -m venv --clear .venv-wheel
tools=$(.venv-wheel/bin/python -c '
import pathlib, tomllib
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
print("\n".join(project["optional-dependencies"]["wheel"]))')
mapfile -t tools <<< "$tools"
.venv-wheel/bin/pip install --quiet "${tools[@]}"
# A build folder of its own: the one of the editable install stays as it is.
.venv-wheel/bin/pip wheel --quiet --no-deps --config-settings build-dir=build/wheel/native --wheel-dir build/wheel .
# Libraries of other wheels, which are loaded from these before ours: copies would be other libraries.
PATH="$PWD/.venv-wheel/bin:$PATH" .venv-wheel/bin/auditwheel repair \
  --exclude libdnnl.so.3 --exclude libscipy_openblas.so --exclude libtvm_ffi.so \
  --wheel-dir dist build/wheel/unity_collage-*.whl
