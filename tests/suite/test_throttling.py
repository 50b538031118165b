"""Pairs are dropped by the clock of the device, never by a measured time."""

from suite.throttling import Throttling


def test_a_pair_below_three_quarters_of_the_median_clock_is_dropped() -> None:
    """Fault: a throttled device compared with itself at full speed."""
    clocks = iter([2000.0, 2000.0, 1400.0, 1600.0, 2000.0])
    throttling = Throttling(lambda: next(clocks))
    seen = [throttling.note() for _ in range(5)]
    assert throttling.kept(seen) == [True, True, False, True, True]


def test_the_median_is_that_of_the_session() -> None:
    """Fault: a device that is slow throughout one case takes that for its usual clock."""
    throttling = Throttling(lambda: 1000.0, seen=[2000.0] * 20)
    assert throttling.kept([throttling.note() for _ in range(5)]) == [False] * 5


def test_nothing_is_dropped_where_no_clock_can_be_read() -> None:
    """Fault: a device without a readable clock that loses all its pairs."""
    throttling = Throttling()
    assert throttling.note() is None
    assert throttling.kept([None, None]) == [True, True]
