#!/bin/sh
# Format, lint, types.
set -eu
cd "$(dirname "$0")/.."
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/mypy
