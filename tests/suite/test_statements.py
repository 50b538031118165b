"""Documented statements as checks: all are there, they turn green when upstream mends a fault, and none is lost."""

import importlib
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cases import plan
from cases.axes import Device, Property, Tier
from cases.requirements import REQUIREMENTS, check_cited
from cases.statements import BASE, STATEMENTS, Statement, Where, statements_of
from reports.audit import Entry
from reports.record import Outcome, Reason
from suite import statements_here as here
from suite.device import BACKENDS, Backend
from suite.documented import ground, hosts
from suite.options import shard_of

LATER = ("infer", "train", "quant", "dist")
"""Groups of requirements whose checks are another piece of work."""

FINDINGS = ("attn.pin_tag#slash", "attn.trust#again", "attn.trust#nested", "config.inherit#modes")
MENDED = (*FINDINGS, "config.per_device#cpu", "config.per_device#metal", "trouble.load#exists")


def test_every_requirement_is_cited_and_every_citation_exists() -> None:
    """Fault: a row of the table that nothing checks, or a check of a statement that nobody made."""
    cited = {name for statement in STATEMENTS.values() for name in statement.requirements}
    for statement in STATEMENTS.values():
        check_cited(statement.requirements)
    for case in plan.build(plan.Selection()):
        for checked in plan.properties(case):
            cited |= set(plan.requirements(case, checked))
    assert cited == set(REQUIREMENTS)


def test_most_rows_are_checked_by_something_that_runs_on_a_cpu() -> None:
    """Fault: rows that stand in the table as NOT_RUN and are counted as covered."""
    waiting = {"env.select", "env.order", "env.capability", "layers.rocm", "mode.follow#device"}
    ready = {
        statement.requirements[0]
        for statement in STATEMENTS.values()
        if statement.id not in waiting and not statement.id.startswith(LATER)
    }
    assert len(ready) >= 42


def test_every_statement_has_a_function_and_every_function_a_statement() -> None:
    """Fault: an id without a check, which would be a KeyError in the run, or a check that nobody asks for."""
    folder = Path(ground.__file__).parent
    for path in folder.glob("*.py"):
        if path.stem not in ("__main__", "__init__"):
            importlib.import_module(f"suite.documented.{path.stem}")
    apart = {statement.id for statement in STATEMENTS.values() if statement.where is not Where.WORKER}
    assert set(ground.CHECKS) == apart
    assert set(here.CHECKS) <= set(STATEMENTS)
    for function in ground.CHECKS.values():
        assert (function.__doc__ or "").startswith("Fault"), function


def test_the_smoke_tier_starts_no_process() -> None:
    """Fault: half a minute that is spent on starting interpreters."""
    assert {statement.where for statement in statements_of(Tier.SMOKE)} == {Where.WORKER}
    assert statements_of(Tier.CORE) == tuple(STATEMENTS.values())


def test_over_all_shards_each_statement_is_asked_once_and_the_base_everywhere() -> None:
    """Fault: a statement that no shard asks."""
    homes = {name: shard_of(name, 3) for name in STATEMENTS}
    assert set(homes.values()) == {1, 2, 3}
    assert set(BASE) <= set(STATEMENTS)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[tuple[hosts.Hosts, hosts.Hosts]]:
    """The libraries as they are, and with some of their faults mended."""
    with ExitStack() as stack:
        made = []
        for mend in (None, Path(__file__).with_name("mends.py")):
            folder = tmp_path_factory.mktemp("hosts")
            host = hosts.Hosts(BACKENDS[Device.CPU], models, folder, folder / "log", [Where.APART] * 20, mend)
            stack.callback(host.close)
            made.append(host)
        yield made[0], made[1]


@pytest.mark.parametrize("identity", MENDED)
def test_a_check_turns_green_when_upstream_mends_the_fault(
    processes: tuple[hosts.Hosts, hosts.Hosts], identity: str
) -> None:
    """Fault: a check that pins what is wrong today, and goes red when it is put right."""
    released, mended = (host.ask(STATEMENTS[identity]) for host in processes)
    assert released.finding.outcome is Outcome.FAIL, released
    assert mended.finding.outcome is Outcome.PASS, mended


def test_a_check_that_dies_hangs_or_is_wrong_itself_costs_only_itself(
    processes: tuple[hosts.Hosts, hosts.Hosts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: results that are lost with the process, or a fault of the suite that is blamed on the library."""
    host = processes[1]

    def ask(name: str) -> tuple[Outcome, Reason | None]:
        finding = host.ask(Statement(name, Where.APART, ())).finding
        return finding.outcome, finding.reason

    assert ask("dies") == (Outcome.CRASH, Reason.INTERRUPTED)
    assert ask("is wrong itself") == (Outcome.HARNESS_ERROR, Reason.EXCEPTION)
    assert ask("attn.trust#nested") == (Outcome.PASS, None)
    monkeypatch.setattr(hosts, "LIMIT", 0.5)
    assert ask("hangs") == (Outcome.TIMEOUT, Reason.INTERRUPTED)


def test_where_a_process_cannot_be_copied_each_check_has_its_own(
    tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: on an accelerator a check that is spoilt by what the one before it left behind."""
    monkeypatch.setattr(Backend, "survives_fork", property(lambda _: False))
    mend = tmp_path / "mend.py"
    mend.write_text(
        "from suite.device import Backend\nBackend.survives_fork = property(lambda _: False)\n", encoding="utf-8"
    )
    host = hosts.Hosts(BACKENDS[Device.CPU], models, tmp_path, tmp_path / "log", [Where.APART] * 2, mend)
    try:
        # The first binds a kernel to a function of the whole process; in the same one the second would see it.
        first, second = (host.ask(STATEMENTS[name]).finding for name in ("config.function#own", "layers.fallback"))
    finally:
        host.close()
    assert (first.outcome, second.outcome) == (Outcome.FAIL, Outcome.PASS), (first, second)


def test_a_shim_of_a_check_is_in_its_answer(processes: tuple[hosts.Hosts, hosts.Hosts]) -> None:
    """Fault: a result that unpatched code would not give, without a word about it."""
    assert processes[0].ask(STATEMENTS["config.layer"]).shims == ("kernel-config-accepts-cpu",)
    assert processes[0].ask(STATEMENTS["config.per_device#cpu"]).shims == ()


def test_a_mask_that_selects_nothing_or_reorders_is_found_on_faked_devices() -> None:
    """Fault: the decision of a row that a CPU cannot run is wrong, and nobody sees it until an accelerator does."""
    devices = ["0a", "0b"]

    def ignoring(mask: str) -> list[str]:
        return devices

    def reordering(mask: str) -> list[str]:
        return [devices[int(index)] for index in mask.split(",")]

    def selecting(mask: str) -> list[str]:
        return [devices[int(index)] for index in sorted(mask.split(","))]

    assert here.judge_mask(ignoring, 2, True).outcome is Outcome.FAIL
    assert here.judge_mask(reordering, 2, True).outcome is Outcome.FAIL
    assert here.judge_mask(reordering, 2, False).outcome is Outcome.PASS
    assert here.judge_mask(selecting, 2, True).outcome is Outcome.PASS
    assert here.judge_mask(selecting, 1, True).outcome is Outcome.NOT_RUN


def test_order_capability_and_rocm_are_judged_on_faked_devices() -> None:
    """Fault: the same for the other three rows that need a device."""
    assert here.judge_order(["0a", "0b"], "1").outcome is Outcome.PASS
    assert here.judge_order(["0b", "0a"], "1").outcome is Outcome.FAIL
    assert here.judge_order(["0b", "0a"], None).outcome is Outcome.NOT_RUN
    assert here.judge_capability((7, 0), "cuda").outcome is Outcome.PASS
    assert here.judge_capability((6, 1), "cuda").outcome is Outcome.FAIL
    assert here.judge_capability(None, "cpu").outcome is Outcome.NOT_RUN
    entry = Entry("RMSNorm", "rocm", "INFERENCE", "org/repo", "Norm", 1, None, False)
    assert here.judge_rocm("rocm", (entry,)).outcome is Outcome.PASS
    assert here.judge_rocm("cuda", (entry,)).outcome is Outcome.FAIL
    assert here.judge_rocm("rocm", ()).outcome is Outcome.FAIL


@pytest.mark.parametrize("name", ["env.select", "env.order", "env.capability", "layers.rocm"])
def test_a_row_that_needs_a_device_says_so_on_a_cpu(name: str) -> None:
    """Fault: a row that is green because nothing was asked."""
    finding = here.CHECKS[name](BACKENDS[Device.CPU])
    assert (finding.outcome, finding.reason) == (Outcome.NOT_RUN, Reason.NOT_APPLICABLE)
    assert finding.message


def test_a_test_id_of_a_statement_is_read_back() -> None:
    """Fault: a crash in a statement that is recorded under another id."""
    from suite.outcomes import parse_item

    for statement in STATEMENTS.values():
        assert re.fullmatch(r"[a-z]+\.[a-z0-9_]+(#[a-z]+)?", statement.id)
        node = f"suite/test_statement.py::test_statement[{statement.id}]@statements"
        assert parse_item(node) == (statement.case, Property.STATEMENT)
