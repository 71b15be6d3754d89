# A GPU machine's environment: CUDA's vLLM, torch and this project.
#
#   docker build -t corrgrpo-gym .
#   docker run --gpus all --ipc=host --privileged -v $PWD/runs:/work/runs -v $HOME/.cache/huggingface:/root/.cache/huggingface \
#       corrgrpo-gym train --config leetcode-qwen2.5-coder-0.5b
#
# --ipc=host: weights of a model on several GPUs pass through /dev/shm. --privileged: bubblewrap makes namespaces for
# the programs that models write.
FROM nvidia/cuda:13.0.2-devel-ubuntu24.04

RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        bubblewrap build-essential ca-certificates git python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /work
ENV PATH=/opt/venv/bin:$PATH
RUN python3 -m venv /opt/venv
COPY pyproject.toml README.md LICENSE CHANGELOG.md /src/
COPY corrgrpo_gym /src/corrgrpo_gym
RUN pip install --no-cache-dir '/src[train,gguf,hub,plot,tensorboard,agentdojo,vllm]' \
    && pip install --no-cache-dir --no-deps agentdojo==0.1.35

ENTRYPOINT ["corrgrpo-gym"]
CMD ["--help"]
