"""Chat models by configuration."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...errors import GymError
from .base import ChatModel

if TYPE_CHECKING:
    from ..config import EvalConfig


def open_model(config: "EvalConfig", cases: Iterable[str]) -> ChatModel:
    """Make what answers.

    Args:
        config: of the evaluation.
        cases: ids of the cases, against which saved answers are checked.

    Raises:
        GymError: no such model or file, a package that is missing.
    """
    if config.answers:
        from .saved import SavedAnswers

        return SavedAnswers(config.answers, cases, config.concurrency or 64, config.limit)
    if config.base_url:
        from .endpoint import Endpoint

        return Endpoint(
            config.base_url,
            config.model,
            api_key=os.environ.get(config.api_key_env),
            key_name=config.api_key_env,
            completions=config.completions,
            concurrency=config.concurrency or 16,
            timeout=config.timeout,
            retries=config.retries,
        )
    if config.model == "reference":
        from .reference import ReferenceModel

        return ReferenceModel(config.concurrency or 64)
    try:
        from .local import LocalModel
    except ImportError as e:
        raise GymError(
            f"a local model needs torch and transformers ({e}): pip install 'corrgrpo-gym[train]'; "
            "for an endpoint give --base-url"
        ) from e
    return LocalModel(config.model, device=config.device, concurrency=config.concurrency or 32, engine=config.engine)
