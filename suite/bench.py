"""Runs one check of one case: what it rests on, the check itself, the evidence, the record.

A worker has one bench. It keeps the subject of the current case, since the plan asks for the properties of a case one
after another, and what was found, since checks rest on one another (``suite.prerequisites``).
"""

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import perf_counter

import torch

from cases.axes import Phase, Property
from cases.case import Case
from cases.ladder import Ladder, Rung
from cases.plan import properties, requirements
from cases.repositories import RepositoryInUse
from cases.statements import BASE, Statement
from reports.record import Engagement, Outcome, Reason, Record, Speed
from reports.verdict import FAILING, severity
from suite import (
    breakeven,
    compiling,
    determinism,
    engagement,
    hub_away,
    memory,
    model_checks,
    probes,
    revisions,
    speed,
    state,
)
from suite.finding import Finding
from suite.model_checks import ArmError
from suite.outcomes import SKIPPED
from suite.prerequisites import Prerequisites, depends, rests_on
from suite.recorder import Recorder
from suite.repository import Repositories
from suite.session_controls import SessionControls
from suite.statements import Statements
from suite.subject import Shelf, Subject

__all__ = ["Bench"]


class Bench:
    """The state of one worker process."""

    def __init__(
        self,
        shelf: Shelf,
        recorder: Recorder,
        *,
        timing: speed.Timing,
        embedded: bool,
        inductor: bool = False,
        repositories: tuple[RepositoryInUse, ...] = (),
        planned: tuple[Statement, ...] = (),
    ) -> None:
        self._shelf = shelf
        self._recorder = recorder
        self._timing = timing
        self._controls = SessionControls(timing, recorder)
        self._embedded = embedded
        self._inductor = inductor
        self._repositories = Repositories(shelf.loader, repositories)
        self._statements = Statements(shelf, recorder, planned)
        self._subject: Subject | None = None
        self._known = Prerequisites(shelf.loader.backend)
        self._evidence: tuple[Engagement, ...] = ()

    def know(self, record: Record) -> None:
        """Take note of a record written by a former worker of this run."""
        self._known.note(record.case, record.property, record.outcome, record.message)
        self._controls.know(record)

    def run(self, case: Case, checked: Property) -> Record:
        """Check one property of one case and record it, whatever happens; of several phases the gravest is returned."""
        if checked is Property.SPEED:
            return self._time(case)
        start = perf_counter()
        subject = self._take(case)
        if checked is Property.BREAK_EVEN:
            self._right_first(subject, checked)
        finding = self._answer(
            subject, checked, lambda: self._known.unmet(case, checked) or self._check(subject, checked)
        )
        return self._record(subject, checked, finding, None, start)

    def _answer(self, subject: Subject, checked: Property, check: Callable[[], Finding]) -> Finding:
        """What a check finds, whatever happens in it, with the evidence."""
        try:
            finding = check()
        except (torch.OutOfMemoryError, MemoryError) as error:
            finding = Finding(Outcome.RESOURCE, None, f"out of memory: {error}")
        except Exception as error:  # a fault of the suite must not look like one of the kernel
            finding = self._failed(error)
        finding = self._with_evidence(subject, checked, finding)
        self._known.note(subject.case.id, checked, finding.outcome, finding.message)
        return finding

    def _record(
        self, subject: Subject, checked: Property, finding: Finding, phase: Phase | None, start: float
    ) -> Record:
        return self._recorder.write(
            subject.case.id,
            checked,
            finding,
            requirements=requirements(subject.case, checked),
            shims=subject.loaded.shims if "loaded" in subject.__dict__ else (),
            phase=phase,
            seconds=perf_counter() - start,
        )

    def _time(self, case: Case) -> Record:
        """Speed, phase by phase, each in a record of its own; before it the control, when it is due."""
        start = perf_counter()
        subject = self._take(case)
        self._right_first(subject, Property.SPEED)
        unmet = self._known.unmet(case, Property.SPEED)
        if unmet is not None:
            return self._record(subject, Property.SPEED, unmet, None, start)
        self._controls.before_case(subject)
        records = []
        for phase in speed.phases(subject):
            start = perf_counter()
            finding = self._answer(subject, Property.SPEED, partial(self._speed, subject, phase))
            records.append(self._record(subject, Property.SPEED, finding, phase, start))
        # One phase that is measured makes the check one, also where another does not call the kernel.
        return max(records, key=lambda record: (record.outcome not in SKIPPED, severity(record.outcome)))

    def _right_first(self, subject: Subject, checked: Property) -> None:
        """Where times alone were asked for: what is wrong has none, so right comes first, here without a record."""
        for needed in rests_on(subject.case, checked):
            if needed in properties(subject.case) and (subject.case.id, needed) not in self._known:
                self._answer(subject, needed, partial(self._check, subject, needed))

    def _speed(self, subject: Subject, phase: Phase) -> Finding:
        return self._evident(subject, Property.SPEED) or speed.speed(subject, phase, self._timing)

    def state(self, statement: Statement) -> Record:
        """Check and record one statement."""
        unfit = None if statement.id in BASE else self._known.unfit(Property.STATEMENT)
        return self._without_case(
            statement.case,
            Property.STATEMENT,
            lambda: (unfit, ()) if unfit else self._statements.check(statement),
            statement.requirements,
        )

    def inspect(self, repository: RepositoryInUse) -> Record:
        """Check and record one kernel repository, before anything of it is called."""
        return self._without_case(
            repository.id, Property.REPOSITORY, lambda: (self._repositories.check(repository), ())
        )

    def look(self, ladder: Ladder, rung: Rung) -> Record:
        """Check and record what one revision of a ladder offers."""
        device = self._shelf.loader.backend.device
        return self._without_case(rung.id, Property.LADDER, lambda: (revisions.finding(ladder, rung, device), ()))

    def _without_case(
        self,
        identity: str,
        checked: Property,
        check: Callable[[], tuple[Finding, tuple[str, ...]]],
        requirements: tuple[str, ...] = (),
    ) -> Record:
        """Record a check that is about no case; it gives the shims that it took as well."""
        start = perf_counter()
        shims: tuple[str, ...] = ()
        try:
            finding, shims = check()
        except Exception as error:  # recorded as what it is, not shown as a traceback
            finding = self._failed(error)
        self._known.note(identity, checked, finding.outcome, finding.message)
        seconds = perf_counter() - start
        return self._recorder.write(identity, checked, finding, requirements=requirements, shims=shims, seconds=seconds)

    def _take(self, case: Case) -> Subject:
        if self._subject is None or self._subject.case != case:
            self._let_go()
            self._subject = Subject(case, self._shelf)
        return self._subject

    def end(self) -> None:
        """The last check is done."""
        self.close()
        self._controls.end()

    def close(self) -> None:
        """Let go of everything: the case, and the processes that check statements."""
        self._statements.close()
        self._let_go()

    def _let_go(self) -> None:
        """Let the current case go."""
        if self._subject is not None:
            self._subject.close()
            self._subject = None
            self._evidence = ()
            gc.collect()

    def _check(self, subject: Subject, checked: Property) -> Finding:
        if checked is Property.LOAD:
            return engagement.load(subject, embedded=self._embedded)
        if checked is Property.ENGAGE:
            known = (subject.case.id, Property.LOAD) in self._known
            finding = self._engage(subject) if known else self._load_and_engage(subject)
            self._evidence = finding.evidence
            return finding
        missing = self._evident(subject, checked)
        if missing is not None:
            return missing
        if checked is Property.COMPILE:
            return compiling.check(subject, inductor=self._inductor)
        if checked is Property.DETERMINISM:
            return determinism.check(subject, self._timing)
        if checked is Property.BREAK_EVEN:
            self._controls.before_case(subject)
            return breakeven.check(subject, self._timing)
        return _CHECKS[checked](subject)

    def _evident(self, subject: Subject, checked: Property) -> Finding | None:
        """Find the proof again if this worker has none, after a crash or by -k; what is wrong if there is none."""
        if self._evidence:
            return None
        again = self._load_and_engage(subject)
        if again.outcome in FAILING:
            # Nobody else records this failure, where only some of the properties are checked.
            return replace(again, message=f"engage is {again.outcome}: {again.message}")
        if again.outcome is not Outcome.PASS:
            return depends(Property.ENGAGE, again.outcome, again.message, checked)
        self._evidence = again.evidence
        return None

    def _load_and_engage(self, subject: Subject) -> Finding:
        """Both, where loading was not asked for: what does not load is not engaged, and is recorded nowhere else."""
        loaded = engagement.load(subject, embedded=self._embedded)
        return self._engage(subject) if loaded.outcome is Outcome.PASS else loaded

    def _engage(self, subject: Subject) -> Finding:
        try:
            return engagement.engage(subject)
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:
            return hub_away.finding(error) or self._raised(_whose(subject, error))

    def _failed(self, error: Exception) -> Finding:
        """What a check says that ended in an exception."""
        away = hub_away.finding(error)
        if away is not None:
            return away
        return self._raised(error) if isinstance(error, ArmError) else self._recorder.harness_error(error)

    def _raised(self, error: ArmError) -> Finding:
        if memory.ran_out(str(error)):
            return Finding(Outcome.RESOURCE, None, f"{'the kernel' if error.kernel else 'PyTorch'} ran out: {error}")
        if error.kernel:
            return Finding(Outcome.FAIL, Reason.EXCEPTION, f"the kernel raised where PyTorch does not: {error}")
        return Finding(Outcome.NOT_RUN, Reason.EXCEPTION, f"PyTorch itself raises here, without any kernel: {error}")

    def _with_evidence(self, subject: Subject, checked: Property, finding: Finding) -> Finding:
        """Attach the ledger; a PASS without proof of calls, or with a binding that changed meanwhile, is none."""
        if checked in (Property.LOAD, Property.ENGAGE) or finding.outcome is not Outcome.PASS:
            return finding
        called = sum(entry.calls for entry in self._evidence)
        problem = None
        if subject.tests_a_kernel and not called:
            problem = Reason.NOT_CALLED, "no call of a kernel was seen, so this result says nothing about one"
        elif not subject.arms.unchanged():
            problem = Reason.REBOUND, "the forwards bound after the check are not those bound before it"
        if problem is not None:
            speed = Speed.NOT_MEASURED if checked is Property.SPEED else None
            return Finding(Outcome.FALLBACK, *problem, evidence=self._evidence, speed=speed)
        return Finding(
            finding.outcome,
            finding.reason,
            finding.message,
            finding.measures,
            self._evidence,
            finding.speed,
            finding.determinism,
        )


def _whose(subject: Subject, error: Exception) -> ArmError:
    """Whether PyTorch raises in the same pass."""
    with subject.arms.pytorch():
        try:
            engagement.exercise(subject)
        except Exception as own:  # any exception means that the kernel is not to blame
            return ArmError(own, kernel=False)
    return ArmError(error, kernel=True)


_CHECKS: dict[Property, Callable[[Subject], Finding]] = {
    Property.PROBE: probes.probe,
    Property.FORWARD: model_checks.forward,
    Property.GRADIENT: model_checks.gradient,
    Property.STATE: state.check,
    Property.GENERATE: model_checks.generate,
    Property.MEMORY: memory.check,
}
