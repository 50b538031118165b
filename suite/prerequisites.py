"""What a check rests on, and what is said in its place where that did not pass.

A check that rests on a failed one is NOT_RUN and names it, so that one fault is one failure. What was found is kept by
case and property, also what a former worker of the run has recorded, whose failure may have taken it away.
"""

from cases.axes import Property
from cases.case import Case
from cases.statements import BASE, PREFIX
from reports.record import Outcome, Reason, Speed
from reports.verdict import FAILING
from suite.device import Backend
from suite.finding import Finding

__all__ = ["RESTS_ON", "Prerequisites", "depends", "rests_on"]

RESTS_ON: dict[Property, tuple[Property, ...]] = {
    Property.LOAD: (),
    Property.ENGAGE: (Property.LOAD,),
    Property.PROBE: (Property.ENGAGE,),
    Property.FORWARD: (Property.ENGAGE,),
    Property.GRADIENT: (Property.FORWARD,),
    Property.STATE: (Property.FORWARD,),
    Property.DETERMINISM: (Property.ENGAGE,),
    Property.COMPILE: (Property.FORWARD,),
    Property.GENERATE: (Property.FORWARD,),
    Property.MEMORY: (Property.ENGAGE,),
    Property.SPEED: (Property.FORWARD, Property.GRADIENT, Property.GENERATE, Property.PROBE),
    Property.BREAK_EVEN: (Property.FORWARD, Property.GRADIENT, Property.GENERATE, Property.PROBE),
}
"""What must have passed before. Times rest on all that says whether the kernel is right."""
MAY_BE_IDLE = frozenset({Property.PROBE, Property.GENERATE})
"""Checks that find nothing to look at in some cases, which says nothing against the kernel."""


class Prerequisites:
    """What one worker knows to have been found."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._found: dict[tuple[str, Property], tuple[Outcome, str]] = {}

    def note(self, case: str, checked: Property, outcome: Outcome, message: str) -> None:
        """Remember how a check ended."""
        self._found[case, checked] = outcome, message

    def __contains__(self, check: tuple[str, Property]) -> bool:
        """Whether a check was made, by the id of its case and its property."""
        return check in self._found

    def unfit(self, checked: Property) -> Finding | None:
        """What is wrong with the device or the packages, without which nothing else can be said."""
        for name in BASE:
            outcome, message = self._found.get((f"{PREFIX}{name}", Property.STATEMENT), (Outcome.PASS, ""))
            if outcome in FAILING:
                return depends(name, outcome, message, checked)
        return None

    def unmet(self, case: Case, checked: Property) -> Finding | None:
        """Why a check of a case is not to be made; None where it is."""
        if unfit := self.unfit(checked):
            return unfit
        if not self._backend.supports(case.dtype):
            return Finding(Outcome.NOT_SUPPORTED, None, f"{self._backend.device} has no {case.dtype}")
        for needed in rests_on(case, checked):
            outcome, message = self._found.get((case.id, needed), (None, ""))
            idle = outcome is Outcome.NOT_RUN and needed in MAY_BE_IDLE
            if outcome is not None and outcome is not Outcome.PASS and not idle:
                return depends(needed, outcome, message, checked)
        return None


def rests_on(case: Case, checked: Property) -> tuple[Property, ...]:
    """What must have passed before; a compiled model that is wrong, or without its kernels, has no speed either."""
    compiled = checked is Property.SPEED and case.mode.compiles
    return (*RESTS_ON[checked], Property.COMPILE) if compiled else RESTS_ON[checked]


def depends(needed: str, outcome: Outcome, message: str, checked: Property) -> Finding:
    """A check is not made, since one that it rests on did not pass."""
    speed = Speed.NOT_MEASURED if checked is Property.SPEED else None
    return Finding(Outcome.NOT_RUN, Reason.DEPENDS, f"{needed} is {outcome}: {message}"[:2000], speed=speed)
