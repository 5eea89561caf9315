#!/bin/bash
# Puts fleetctl's own wheel and all that it needs for CPython 3.12 on x86-64 Linux into a folder
# (about 25 MB, 20 s; later runs build fleetctl's wheel anew and fetch only what is missing).
# usage: wheels.sh OUTDIR   (variable PYTHON: one with pip and hatchling; default the checkout's)
set -euo pipefail
out=${1:?out dir}
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
PYTHON=${PYTHON:-$top/.venv/bin/python}
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out"/fleetctl-*.whl
(cd "$top" && "$PYTHON" -m hatchling build -t wheel -d "$out" >/dev/null)
platforms=()
for tag in manylinux_2_34 manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014 manylinux1; do
  platforms+=(--platform "${tag}_x86_64")
done
"$PYTHON" -m pip download -q --disable-pip-version-check --only-binary=:all: --python-version 3.12 \
  --implementation cp "${platforms[@]}" --find-links "$out" -d "$out" "$out"/fleetctl-*.whl
du -sh "$out"
