import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """The models are so small that a second thread only waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
