"""Watches the machine over a session: the canary before the first speed and after the last, the A/A control between.

All are records of their own (``control/…``), about the machine and not about a kernel.
"""

from time import perf_counter

import torch

from cases.axes import Property
from reports.controls import PREFIX
from reports.record import Record
from suite import canary, speed
from suite.control import identity
from suite.model_checks import ArmError
from suite.recorder import Recorder
from suite.subject import Subject

__all__ = ["SessionControls"]


class SessionControls:
    """The controls of one worker."""

    def __init__(self, timing: speed.Timing, recorder: Recorder) -> None:
        self._timing = timing
        self._recorder = recorder
        self._fit: canary.Fitness | None = None

    def know(self, record: Record) -> None:
        """Take note of a control of the worker that this one replaces."""
        if record.case.startswith(PREFIX):
            self._timing.control.heard(record.speed, record.message)

    def before_case(self, subject: Subject) -> None:
        """Record what is due before the speed of a case is measured."""
        if self._fit is None:
            self._examine("before")
        start = perf_counter()
        try:
            found = speed.control(subject, self._timing)
        except (torch.OutOfMemoryError, MemoryError, ArmError):
            # PyTorch itself fails here, which the check that follows is going to say.
            return
        if found is not None:
            self._recorder.write(found[0], Property.SPEED, found[1], seconds=perf_counter() - start)

    def end(self) -> None:
        """Look at the machine again, if any speed was measured."""
        if self._fit is not None:
            self._examine("after")

    def _examine(self, when: str) -> None:
        start = perf_counter()
        found = canary.examine(self._timing.backend)
        said = canary.finding(found, when, self._fit)
        self._fit = self._fit or found
        name = identity(f"fitness-{when}")
        self._recorder.write(name, Property.STATEMENT, said, seconds=perf_counter() - start)
