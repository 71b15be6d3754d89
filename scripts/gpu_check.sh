#!/bin/sh
# Checks the learner on a machine with one GPU, in a few minutes and without a network, and writes a JSON of figures.
#
#   scripts/gpu_check.sh --collect DIR    with a network: fetch the wheels that a GPU machine may lack into DIR
#   scripts/gpu_check.sh [DIR] [ARGS]     on the GPU machine; DIR: those wheels. ARGS go to gpu_check.py (--device, --out)
#
# Environment: PYTHON (default python3): an interpreter that has torch and transformers. Nothing is installed into it.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
# What the learner imports besides torch, transformers and what they bring.
light="gymnasium pydantic typer rich tomli-w jinja2 sortedcontainers"

if [ "${1:-}" = --collect ]; then
    version=${PYTHON_VERSION:-3.12}
    exec "$python" -m pip download --quiet --only-binary :all: --python-version "$version" --platform manylinux2014_x86_64 \
        --platform manylinux_2_28_x86_64 --dest "$2" $light
fi

"$python" -c 'import torch, transformers' || {
    echo "gpu_check: $python has no torch or no transformers; name one that has: PYTHON=... $0" >&2
    exit 2
}
path=$PWD
if [ "$#" -gt 0 ] && [ -d "$1" ]; then
    site=$(mktemp -d)
    trap 'rm -rf "$site"' EXIT
    # Only what is missing: the machine's own numpy and torch stay what they are.
    for package in $light; do
        module=$(echo "$package" | tr - _)
        "$python" -c "import $module" 2>/dev/null && continue
        "$python" -m pip install --quiet --no-index --find-links "$1" --target "$site" --upgrade "$package"
    done
    rm -rf "$site"/numpy "$site"/numpy-*
    path="$path:$site"
    shift
fi
PYTHONPATH="$path${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 "$python" scripts/gpu_check.py "$@"
