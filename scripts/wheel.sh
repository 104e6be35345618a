#!/usr/bin/env bash
# Build the wheel for other machines in dist/, with the oldest platform tag that its native libraries allow.
# Needs Python 3.11 or later (tomllib) and g++. PROCESSOR=aarch64 builds for another processor than this machine's, with
# the cross compiler of Debian's package g++-aarch64-linux-gnu.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$(uname -m)
processor=${PROCESSOR:-$here}
rm -rf "build/wheel/$processor" dist/unity_collage-*"_$processor.whl"
if [ "$processor" = "$here" ]; then
  rm -f dist/unity_collage-*.whl  # of other versions too
fi
python3 -m venv --clear .venv-wheel
tools=$(.venv-wheel/bin/python -c '
import pathlib, tomllib
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
print("\n".join(project["optional-dependencies"]["wheel"]))')
mapfile -t tools <<< "$tools"
.venv-wheel/bin/pip install --quiet "${tools[@]}"

settings=(--config-settings "build-dir=build/wheel/$processor/native")
if [ "$processor" != "$here" ]; then
  if ! command -v "$processor-linux-gnu-g++" > /dev/null; then
    echo "there is no $processor-linux-gnu-g++: apt-get install g++-${processor//_/-}-linux-gnu" >&2
    exit 1
  fi
  # Headers and libraries of the wheels of that processor, of those that the build requires.
  wheels=$PWD/build/wheel/$processor/wheels
  required=$(.venv-wheel/bin/python -c '
import pathlib, tomllib
build = tomllib.loads(pathlib.Path("pyproject.toml").read_text(encoding="utf-8"))["build-system"]
print("\n".join(text for text in build["requires"] if text.startswith(("apache-tvm-ffi", "scipy-openblas32"))))')
  mapfile -t required <<< "$required"
  .venv-wheel/bin/pip install --quiet --no-deps --target "$wheels" --only-binary=:all: \
    --platform "manylinux_2_28_$processor" --platform "manylinux_2_17_$processor" "${required[@]}"
  for define in CMAKE_SYSTEM_NAME=Linux "CMAKE_SYSTEM_PROCESSOR=$processor" "COLLAGE_WHEELS=$wheels" \
    "CMAKE_CXX_COMPILER=$processor-linux-gnu-g++"; do
    settings+=(--config-settings "cmake.define.$define")
  done
  settings+=(--config-settings "wheel.tags=py3-none-linux_$processor")
fi
# Uses another build folder than the editable install, whose folder stays as it is.
.venv-wheel/bin/pip wheel --quiet --no-deps "${settings[@]}" --wheel-dir "build/wheel/$processor" .
# These libraries belong to other wheels, from which they are loaded before ours. Copies would be loaded a second time.
PATH="$PWD/.venv-wheel/bin:$PATH" .venv-wheel/bin/auditwheel repair \
  --exclude libdnnl.so.3 --exclude libscipy_openblas.so --exclude libtvm_ffi.so \
  --wheel-dir dist "build/wheel/$processor"/unity_collage-*.whl
