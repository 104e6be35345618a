#!/usr/bin/env bash
# Install the wheel of dist/ in a Debian 12 that has Python and not much else: no compiler, no libgomp, no network.
# Compile, save, load and run models there. Needs root, mmdebstrap, and what scripts/wheel.sh has built; in a container
# without the right to make namespaces it says so and checks nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=(dist/unity_collage-*_"$(uname -m)".whl)
if [ ! -f "${wheel[0]}" ] || [ ! -x .venv-wheel/bin/pip ]; then
  echo "there is no wheel in dist: make wheel" >&2
  exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "a root of Debian is made and entered: run this as root" >&2
  exit 1
fi
if ! unshare --mount --pid --net --fork true; then
  echo "NOT CHECKED: this machine lets nobody make namespaces, so the wheel is not tried without a compiler" >&2
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT
root=$folder/root

mmdebstrap --quiet --mode=root --variant=minbase --include=python3-minimal,python3-venv bookworm "$root"
version=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
.venv-wheel/bin/pip download --quiet --only-binary=:all: --python-version "$version" --dest "$root/opt/wheels" "${wheel[0]}"
cp -r scripts/check_installed.py examples benchmarks "$root/opt"

# In namespaces of its own: the mounts and all other processes are gone when the first process in them ends, even after
# an error.
unshare --mount --pid --net --fork --kill-child --mount-proc="$root/proc" chroot "$root" \
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 bash -euo pipefail -s <<'INSIDE'
cd /opt
for tool in cc gcc g++ c++ clang ld; do
  if command -v "$tool" > /dev/null; then echo "$tool is here: nothing is checked without a compiler" >&2; exit 1; fi
done
if ldconfig -p | grep libgomp; then echo "libgomp is here: nothing is checked without it" >&2; exit 1; fi
python3 -m venv venv
venv/bin/pip install --quiet --no-index --find-links wheels unity_collage
rm -r wheels
venv/bin/python check_installed.py
venv/bin/python examples/onnx_model.py mnist_mlp  # what scripts/quickstart.sh runs, with a smaller model
INSIDE
