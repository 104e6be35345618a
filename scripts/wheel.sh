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
# Uses another build folder than the editable install, whose folder stays as it is.
.venv-wheel/bin/pip wheel --quiet --no-deps --config-settings build-dir=build/wheel/native --wheel-dir build/wheel .
# These libraries belong to other wheels, from which they are loaded before ours. Copies would be loaded a second time.
PATH="$PWD/.venv-wheel/bin:$PATH" .venv-wheel/bin/auditwheel repair \
  --exclude libdnnl.so.3 --exclude libscipy_openblas.so --exclude libtvm_ffi.so \
  --wheel-dir dist build/wheel/unity_collage-*.whl
