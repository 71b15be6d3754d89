"""Files of data sets on the Hugging Face hub: cached copies first, then a download."""

from pathlib import Path

from ..errors import GymError


class Unreachable(GymError):
    """The data are neither cached nor to be had; the message says why and what to do."""


def fetch(repository: str, name: str, *, revision: str = "main", instead: str = "") -> tuple[Path, str]:
    """Find or download a file of a data set.

    Args:
        repository: "owner/name" of the data set.
        name: the file's path in it.
        revision: a branch, tag or commit; a cached copy of "main" will do as well.
        instead: ends the message of the error: how to do without.

    Returns:
        Its path, and where it came from.

    Raises:
        Unreachable: huggingface_hub isn't installed, there is no network, or the hub refused.
    """
    try:
        import huggingface_hub as hf
    except ImportError:
        needs = f"reading {repository} from the hub needs huggingface_hub: pip install 'corrgrpo-gym[hub]'."
        raise Unreachable(f"{needs} {instead}".strip()) from None
    for cached in dict.fromkeys((revision, "main")):
        path = hf.try_to_load_from_cache(repository, name, revision=cached, repo_type="dataset")
        if isinstance(path, str):
            return Path(path), f"{repository} ({cached[:7]}), cached"
    try:
        # Asked once first: where there's no network, a download goes on trying for half a minute.
        url = hf.hf_hub_url(repository, name, repo_type="dataset", revision=revision)
        hf.get_hf_file_metadata(url, timeout=10)
        path = hf.hf_hub_download(repository, name, revision=revision, repo_type="dataset")
    except Exception as error:  # the libraries below it raise httpx, requests, OS and their own errors
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise Unreachable(
            f"{repository} is not in the hub's cache and {name} could not be downloaded ({reason}). {instead}".strip()
        ) from error
    return Path(path), f"{repository} ({revision[:7]}), downloaded"
