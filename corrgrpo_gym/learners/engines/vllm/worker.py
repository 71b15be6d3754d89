"""What runs beside the model in vLLM's workers: new weights, put in place. vLLM imports this module by its name."""

from collections.abc import Iterable
from typing import Any

import torch

# As `--worker-extension-cls` wants it.
EXTENSION = f"{__name__}.LearnerWeights"


class LearnerWeights:
    """Methods that vLLM adds to its worker (`worker_extension_cls`), called by `collective_rpc`."""

    model_runner: Any

    def take_learner_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Replace all weights.

        Args:
            weights: Checkpoint names and tensors, of any floating type.
        """
        self.model_runner.reload_weights(weights_iterator=iter(weights))
        _repack(self.model_runner.get_model())

    def read_learner_weights(self, path: str) -> dict[str, int]:
        """Replace all weights by those of a safetensors file.

        Returns:
            The number of tensors.
        """
        from safetensors import safe_open

        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            self.take_learner_weights((name, file.get_tensor(name)) for name in names)
        return {"tensors": len(names)}


def _repack(model: Any) -> None:
    """On a CPU, products are made with packed copies; reloading renews all of them but an embedding's and a head's."""
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    for module in model.modules():
        if isinstance(module, VocabParallelEmbedding):
            module.quant_method.process_weights_after_loading(module)
