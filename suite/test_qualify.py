"""With ``--qualify``: are the faults found that are known to be there, on this device?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cases.axes import Property
from suite import qualify
from suite.outcomes import raise_for
from suite.recorder import Recorder


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item for each fault; none in a run that does not qualify."""
    if "fault" in metafunc.fixturenames:
        chosen = qualify.identifiers() if metafunc.config.getoption("qualify") else ()
        # One worker runs them all, in one go.
        together = pytest.mark.xdist_group("faults") if metafunc.config.getoption("dist") == "loadgroup" else ()
        metafunc.parametrize("fault", [pytest.param(each, marks=together, id=each) for each in chosen])


@pytest.fixture(scope="session")
def qualification(facts: Mapping[str, Any]) -> dict[str, qualify.FaultVerdict]:
    """What the suite says of all faults, run when the first is asked for."""
    folder = Path(facts["folder"]) / "qualification"
    return {verdict.fault: verdict for verdict in qualify.run(facts["device"], folder)}


# The first one runs them all.
@pytest.mark.timeout(qualify.SECONDS)
def test_fault(fault: str, facts: Mapping[str, Any], request: pytest.FixtureRequest) -> None:
    """Is the fault found by the check that is there for it, and nothing said against its healthy twin?"""
    recorder = Recorder(Path(facts["folder"]), facts["rerun"])
    try:
        found = qualify.finding(request.getfixturevalue("qualification")[fault])
    except qualify.QualificationError as error:
        found = recorder.harness_error(error)
    raise_for(recorder.write(f"{qualify.PREFIX}{fault}", Property.STATEMENT, found))
