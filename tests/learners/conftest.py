import os
from importlib.util import find_spec

import pytest
import torch

# These run in .venv-vllm, by scripts/test.sh.
collect_ignore = [] if find_spec("vllm") else ["vllm"]

# Before anything loads a tokenizer: some tests fork.
os.environ["TOKENIZERS_PARALLELISM"] = "false"


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """The models are so small that a second thread only waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def no_hooks():
    from . import toy

    yield
    toy.HOOKS.clear()


@pytest.fixture(scope="session")
def whole(tmp_path_factory, cache):
    """Uninterrupted runs by variant, each made once."""
    from . import runs

    made = {}

    def get(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("whole") / name
            assert runs.start(made[name], **runs.VARIANTS[name]).finished
        return made[name]

    return get
