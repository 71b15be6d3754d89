# `make train` runs the main job on the embedded default; `make test` runs all tests. Both set up what they need first.
PYTHON ?= python3
ENV ?= leetcode
ALGO ?= corrgrpo
ARGS ?=
BIN := .venv/bin

.PHONY: train test test-full check bench clean
.DELETE_ON_ERROR:

train: .venv/installed
	$(BIN)/corrgrpo-gym train --env $(ENV) --algo $(ALGO) $(ARGS)

test: .venv/installed-dev .venv-vllm/installed
	sh scripts/test.sh $(ARGS)

# The long tables: every ground truth of AgentDojo, some minutes.
test-full: .venv/installed-dev
	sh scripts/test.sh -m full $(ARGS)

check: .venv/installed-dev
	sh scripts/check.sh

bench: .venv/installed-dev
	for bench in benchmarks/bench_*.py; do $(BIN)/python $$bench || exit 1; done

.venv/installed: pyproject.toml constraints.txt scripts/setup.sh
	PYTHON="$(PYTHON)" sh scripts/setup.sh train,gguf,plot
	touch $@

.venv/installed-dev: pyproject.toml constraints.txt scripts/setup.sh
	PYTHON="$(PYTHON)" sh scripts/setup.sh train,gguf,hub,docker,agentdojo,tensorboard,plot,dev
	touch $@ .venv/installed

.venv-vllm/installed: pyproject.toml constraints.txt scripts/setup_vllm.sh
	PYTHON="$(PYTHON)" sh scripts/setup_vllm.sh
	touch $@

clean:
	rm -rf .venv .venv-vllm build dist
