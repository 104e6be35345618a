#!/usr/bin/env bash
# Check the wheel for aarch64 on an emulated machine: install it in a Debian 12 for aarch64, compile, save, load and run
# models there, run the tests of our kernels, and let the machine measure kernels and run programs that are made here.
# Needs root, mmdebstrap, qemu-user-static, what PROCESSOR=aarch64 scripts/wheel.sh has built, and, as PYTHON, a Python
# with this package and its extra rpc. Takes a quarter of an hour.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(command -v "${PYTHON:-python}") || { echo "there is no ${PYTHON:-python}" >&2; exit 1; }
if [ "$(id -u)" -ne 0 ]; then
  echo "a root of Debian is made: run this as root" >&2
  exit 1
fi
wheel=(dist/unity_collage-*_aarch64.whl)
if [ ! -f "${wheel[0]}" ] || [ ! -x .venv-wheel/bin/pip ]; then
  echo "there is no wheel for aarch64 in dist: make wheel PROCESSOR=aarch64" >&2
  exit 1
fi
qemu=$(command -v qemu-aarch64-static) || { echo "there is no qemu-aarch64-static: apt-get install qemu-user-static" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT
root=$folder/root machine=$folder/machine

# The packages are only unpacked: their scripts would have to run on the other processor.
mmdebstrap --quiet --mode=root --variant=extract --arch=arm64 --include=python3,libstdc++6 bookworm "$root"
version=$(cd "$root/usr/bin" && ls -d python3.[0-9]*[0-9] | head -n 1)
# LLVM reads the model of the processor from here.
mkdir -p "$root/proc"
for number in 0 1; do
  printf '%s\n' "processor : $number" 'Features : fp asimd aes pmull sha1 sha2 crc32 atomics fphp asimdhp asimdrdm lrcpc asimddp' \
    'CPU implementer : 0x41' 'CPU architecture: 8' 'CPU variant : 0x3' 'CPU part : 0xd0c' 'CPU revision : 1' ''
done > "$root/proc/cpuinfo"

# A virtual environment whose interpreter starts the emulator, also for the processes that it starts itself.
site=$machine/lib/$version/site-packages
mkdir -p "$machine/bin"
printf 'home = %s\ninclude-system-site-packages = false\n' "$root/usr/bin" > "$machine/pyvenv.cfg"
cat > "$machine/bin/python" <<END
#!/bin/sh
QEMU_CPU=neoverse-n1 exec $qemu -L $root -0 "\$0" $root/usr/bin/$version "\$@"
END
chmod +x "$machine/bin/python"
platforms=()
for glibc in 2_34 2_28 2_27 2_26 2_24 2_17; do
  platforms+=(--platform "manylinux_${glibc}_aarch64")
done
# pip would ask this machine which requirements are for its processor.
required=$(.venv-wheel/bin/python -c '
import sys, zipfile
from email.parser import Parser
from packaging.requirements import Requirement
with zipfile.ZipFile(sys.argv[1]) as wheel:
    (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    texts = Parser().parsestr(wheel.read(metadata).decode()).get_all("Requires-Dist")
for each in map(Requirement, texts):
    if each.marker is None or each.marker.evaluate({"platform_machine": "aarch64", "extra": "rpc"}):
        print(f"{each.name}{each.specifier}")' "${wheel[0]}")
mapfile -t required <<< "$required"
installing=(.venv-wheel/bin/pip install --quiet --target "$site" --python-version "${version#python}" --implementation cp
  --only-binary=:all: "${platforms[@]}")
"${installing[@]}" "${required[@]}" pytest hypothesis
"${installing[@]}" --no-deps "${wheel[0]}"
cp -r tests examples benchmarks pyproject.toml scripts/check_installed.py "$machine"

# Without the compilers of this machine.
emulated() {
  (cd "$machine" && env -i PATH="$machine/bin" HOME="$machine" LANG=C.UTF-8 "$machine/bin/python" "$@")
}
emulated check_installed.py
"$python" scripts/check_aarch64.py "$machine/bin/python"
emulated -m pytest -q -p no:cacheprovider tests/backend/test_kernels_{winograd,recurrent,attention,grouped,backend}.py \
  tests/backend/test_native_module.py tests/build/test_float_mode.py tests/build/test_numbers.py
