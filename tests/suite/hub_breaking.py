"""A pytest plugin for a run of the suite in one process (``-n 0``): breaks the run's Hub at the start of chosen checks.

The environment variable ``HUB_BREAKS`` has a JSON object: the beginning of the name of a check, and what is wrong from
then on: a fault, ``"gone"`` for a server that is no more, or null for nothing. The first that fits counts.
"""

import json
import os
from typing import Any

import pytest

from suite.conftest import STATE
from suite.hub import Fault, FaultKind, set_fault

BREAKS: dict[str, Any] = json.loads(os.environ.get("HUB_BREAKS", "{}"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    named = next((name for name in BREAKS if item.name.startswith(name)), None)
    if named is None:
        return
    fault = BREAKS[named]
    if fault == "gone":
        session = item.config.stash[STATE].session
        assert session is not None
        session.resources.close()
        return
    wrong = None if fault is None else Fault(**{**fault, "kind": FaultKind(fault["kind"])})
    set_fault(os.environ["HF_ENDPOINT"], wrong)
