#!/usr/bin/env bash
# Install the wheel of dist/ under each supported Python that is on the path, in a fresh environment. Compile, save, load
# and run a model there, and run most of tests/unit. Needs what scripts/wheel.sh has built.
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=(dist/unity_collage-*_"$(uname -m)".whl)
if [ ! -f "${wheel[0]}" ]; then
  echo "there is no wheel in dist: make wheel" >&2
  exit 1
fi
# Leaves out tests that compare with ONNX Runtime, whose last version for Python 3.10 is not the tested one.
mapfile -t tests < <(grep --recursive --files-without-match --include='test_*.py' --regexp=onnxruntime --regexp=onnx_case tests/unit)
failed=0
for version in 3.10 3.11 3.12 3.13; do
  echo "== Python $version"
  if ! "python$version" -c '' 2> /dev/null; then
    echo "not here"
    continue
  fi
  environment=.venv-python$version
  "python$version" -m venv --clear "$environment"
  "$environment/bin/pip" install --quiet "${wheel[0]}" pytest pytest-xdist hypothesis || { failed=1; continue; }
  "$environment/bin/python" scripts/check_installed.py || failed=1
  "$environment/bin/pytest" --quiet --numprocesses auto --dist worksteal -m "not alone" "${tests[@]}" || failed=1
done
exit $failed
