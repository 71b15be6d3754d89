import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory):
    """A cache of our own: no test reads or writes the user's, and the first that needs a thing makes it."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("CORRGRPO_GYM_CACHE")
    os.environ["CORRGRPO_GYM_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["CORRGRPO_GYM_CACHE"]
    else:
        os.environ["CORRGRPO_GYM_CACHE"] = before
