#!/bin/sh
# All checks and all tests. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
sh scripts/check.sh
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
exec .venv/bin/python -m pytest "$@"
