"""Where things are kept between runs that can be made again: warm-started policies, times of references."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def cache_folder() -> Path:
    """The folder: $CORRGRPO_GYM_CACHE, else corrgrpo-gym in the user's cache folder."""
    home = os.environ.get("CORRGRPO_GYM_CACHE")
    if home:
        return Path(home).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "corrgrpo-gym"


def read_kept(path: Path) -> dict[str, Any]:
    """What a file keeps; nothing where it is missing or damaged."""
    try:
        kept = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return kept if isinstance(kept, dict) else {}


def keep(path: Path, value: dict[str, Any]) -> None:
    """Write a file, whole or not at all, whoever else writes it. One that cannot be written is no error."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
        os.replace(temporary, path)
        temporary = ""
    except OSError:
        pass
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
