"""What several tests of the suite share."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the models of a module, whose tensors are small: a second thread costs more than it does."""
    # Imported here: not every test needs them, and each import takes seconds.
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path_factory.mktemp("models")
    torch.set_num_threads(threads)
