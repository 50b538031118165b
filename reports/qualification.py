"""What ``--qualify`` found, in one sentence: how many of the faults that are known to be there the suite sees here.

Its records have cases ``fault/S01``, … and say in ``caught`` and ``twin_clean`` what became of a fault and its twin.
"""

from collections.abc import Sequence

from reports.record import Outcome, Record

__all__ = ["PREFIX", "sentences"]

PREFIX = "fault/"
"""How the cases of these records begin."""


def sentences(records: Sequence[Record]) -> tuple[str, ...]:
    """The sentence for the head of a report; none if the run was not qualified."""
    # The last record of a fault counts: a resumed run tries again.
    faults = {record.case: record for record in records if record.case.startswith(PREFIX)}
    if not faults:
        return ()
    found = sum(record.measures.get("caught") is True for record in faults.values())
    accused = sum(record.measures.get("twin_clean") is False for record in faults.values())
    text = f"This harness, on this device, finds {found} of {len(faults)} seeded faults, with {accused} false alarms"
    failed = [case.removeprefix(PREFIX) for case, record in faults.items() if record.outcome is not Outcome.PASS]
    if not failed:
        return (f"{text} on their healthy twins.",)
    return (f"{text}; not as it should be: {', '.join(failed)}. A green run says less here.",)
