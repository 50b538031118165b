"""Peak memory by following storages, where the allocator does not count."""

from collections.abc import Callable

import pytest
import torch

from cases.axes import Device
from suite.device import BACKENDS
from suite.memory import peak_bytes

X = torch.ones(1000)
SIZE = X.nbytes


def chain() -> torch.Tensor:
    first = X + 1
    second = first * 2
    del first
    return second.view(10, 100) * 3


def keep_all() -> list[torch.Tensor]:
    return [X + number for number in range(5)]


def in_place() -> torch.Tensor:
    return (X + 1).mul_(2).add_(3)


@pytest.mark.parametrize(("work", "units"), [(chain, 2), (keep_all, 5), (in_place, 1)])
def test_the_peak_counts_what_is_alive_at_once(work: Callable[[], object], units: int) -> None:
    """Fault: the sum of all allocations taken for the peak; views and in-place results counted twice."""
    assert peak_bytes(BACKENDS[Device.CPU], work) == units * SIZE


def test_what_was_alive_before_is_not_counted() -> None:
    """Fault: the weights of the model in the peak of a call."""
    assert peak_bytes(BACKENDS[Device.CPU], lambda: X.view(10, 100)) == 0
