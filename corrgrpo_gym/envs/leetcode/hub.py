"""LeetCodeDataset on the Hugging Face hub: cached copies first, then a download."""

from pathlib import Path

from ...errors import GymError

REPOSITORY = "newfacade/LeetCodeDataset"
REVISION = "215604aeed660029df7de2fea5a4d7b6ed476a08"  # v0.3.1
_INSTEAD = "Pass data=PATH (a folder with its files) or data='embedded' to do without."


class Unreachable(GymError):
    """The data are neither cached nor to be had; the message says why and what to do."""


def fetch(split: str) -> tuple[Path, str]:
    """Find or download the file of a split.

    Returns:
        Its path, and where it came from.

    Raises:
        Unreachable: huggingface_hub isn't installed, there is no network, or the hub refused.
    """
    try:
        import huggingface_hub as hf
    except ImportError:
        raise Unreachable(
            f"reading {REPOSITORY} from the hub needs huggingface_hub: pip install 'corrgrpo-gym[hub]'. {_INSTEAD}"
        ) from None
    name = f"LeetCodeDataset-{split}.jsonl"
    for revision in (REVISION, "main"):
        path = hf.try_to_load_from_cache(REPOSITORY, name, revision=revision, repo_type="dataset")
        if isinstance(path, str):
            return Path(path), f"{REPOSITORY} ({revision[:7]}), cached"
    try:
        # Asked once first: where there's no network, a download goes on trying for half a minute.
        url = hf.hf_hub_url(REPOSITORY, name, repo_type="dataset", revision=REVISION)
        hf.get_hf_file_metadata(url, timeout=10)
        path = hf.hf_hub_download(REPOSITORY, name, revision=REVISION, repo_type="dataset")
    except Exception as error:  # the libraries below it raise httpx, requests, OS and their own errors
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise Unreachable(
            f"{REPOSITORY} is not in the hub's cache and could not be downloaded ({reason}). {_INSTEAD}"
        ) from error
    return Path(path), f"{REPOSITORY} ({REVISION[:7]}), downloaded"
