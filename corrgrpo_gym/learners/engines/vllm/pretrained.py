"""A model with weights of its own in vLLM, for evaluations: nothing is trained, nothing is pushed."""

import contextlib
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch

from ....errors import GymError
from ...chat import end_ids, load_tokenizer
from .local import Options, VllmEngine, need_vllm


class VllmModel:
    """A tokenizer, and an engine that has the model's own weights.

    Args:
        source: Hub id, folder or .gguf file.
        max_rows: Sequences decoded at the same time.

    Attributes:
        engine: The engine; close it when done.
        tokenizer: With a chat template.
        end_ids: Token ids that end an answer.
        room: Tokens that a sequence may have: what the model can read and the memory can hold.
        commit: Revision of a model from the hub.

    Raises:
        GymError: vLLM is not installed, there is no such model, or one that it can't run.
    """

    def __init__(self, source: str, max_rows: int):
        need_vllm()
        from transformers import AutoConfig, GenerationConfig

        from ...policy import check_model, load_model

        check_model(source)
        path = Path(source).expanduser()
        with tempfile.TemporaryDirectory(prefix="corrgrpo-gym-vllm-") as folder:
            if path.suffix == ".gguf":
                model, tokenizer = load_model(source)
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
                source = folder
            elif path.exists():
                source = str(path)
            try:
                config = AutoConfig.from_pretrained(source)
                self.tokenizer = load_tokenizer(source)
            except (OSError, ValueError) as e:
                raise GymError(
                    f"cannot load the model {source!r}: {(str(e) or type(e).__name__).splitlines()[0]}"
                ) from e
            generation = None
            with contextlib.suppress(OSError):  # not every model has one
                generation = GenerationConfig.from_pretrained(source)
            self.end_ids = end_ids(self.tokenizer, SimpleNamespace(generation_config=generation))
            dtype = "bfloat16" if torch.cuda.is_available() else "float32"
            # 0: as many tokens as the model can read, or fewer where the key-value cache holds no more.
            options = Options(dtype, max_model_len=0, max_rows=max_rows, gpu_memory_utilization=0.9, sleep=False)
            self.engine = VllmEngine(source, self.end_ids, options)
        self.room = self.engine.max_model_len
        self.commit = str(getattr(config, "_commit_hash", None) or "")
