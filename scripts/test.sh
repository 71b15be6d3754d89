#!/bin/sh
# All checks and all tests. With arguments, which go to pytest: the checks, and what of .venv's tests they choose.
set -eu
cd "$(dirname "$0")/.."
sh scripts/check.sh
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
if [ "$#" = 0 ]; then
    .venv-vllm/bin/python -m pytest tests/learners/vllm
fi
exec .venv/bin/python -m pytest "$@"
