"""The checks ``load`` and ``engage``: did the model load as asked, and did the kernels asked for really run?

Both turn what the libraries said and what the ledger saw into a finding with a typed reason. A kernel that was asked
for by name, or that the default mapping promises for this device and mode, and that did not run, is a FALLBACK. A name
that nobody promised is NOT_RUN with the library's own reason.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from cases.attention import attention
from cases.plan import called
from reports.record import Engagement, Outcome, Reason
from suite import features, hub_away, ledger, passes, pins
from suite.arms import Site
from suite.finding import Finding, Measure
from suite.loading import kernel_mode
from suite.subject import Subject
from suite.variant_signature import INVALID

__all__ = ["engage", "exercise", "load"]

NOT_PROMISED = frozenset(
    {Reason.NO_LAYER, Reason.NO_DEVICE, Reason.NO_COMPATIBLE_PROPERTIES, Reason.NO_COMPATIBLE_MODE, Reason.CONDITION}
)
"""With the default mapping these mean that there is no promise for this device and mode."""


UNSUPPORTED = re.compile(r"does not support (backward|torch\.compile)")
"""What kernels says where a layer's own flags exclude the mode it is asked for in."""


def load(subject: Subject, *, embedded: bool) -> Finding:
    """Load the model by the route of its case."""
    try:
        loaded = subject.loaded
    except Exception as error:  # whatever the libraries raise is what is being checked
        away = hub_away.finding(error)
        if away is not None:
            return away
        reason, message = _refusal(error)
        if embedded and subject.case.mapping == "default" and reason in (Reason.CANNOT_LOAD, Reason.UNTRUSTED):
            return Finding(Outcome.NOT_RUN, Reason.NO_HUB, f"{message} The embedded Hub has only bundled kernels.")
        if embedded and "RepositoryNotFoundError" in message:
            message = f"the embedded Hub has only bundled kernels (try --hub online): {message}"
        if UNSUPPORTED.search(message):
            # Kernels refuses a layer that says of itself that it has no backward pass, or cannot be compiled.
            return Finding(
                Outcome.NOT_SUPPORTED, Reason.NO_COMPATIBLE_MODE, f"declared by the kernel itself: {message}"
            )
        return Finding(Outcome.FAIL, reason, message)
    measures: dict[str, Measure] = {"load_seconds": subject.load_seconds, **subject.downloads.measures}
    return Finding(Outcome.PASS, message=f"loaded by {loaded.route}", measures={"route": loaded.route, **measures})


def _refusal(error: Exception) -> tuple[Reason, str]:
    """The typed reason of an exception at load, and its text."""
    links = list(hub_away.chain(error))
    text = f"{type(error).__name__}: {error}"
    names = {type(link).__name__ for link in links}
    if "trusted publisher" in text or "trust status" in text:
        return Reason.UNTRUSTED, text
    missing = {"FileNotFoundError", "RepositoryNotFoundError", "RevisionNotFoundError", "EntryNotFoundError"}
    if names & missing or any(isinstance(link, OSError) for link in links):
        return Reason.CANNOT_LOAD, text
    return Reason.REJECTED, text


def engage(subject: Subject) -> Finding:
    """One untimed pass with every kernel forward counted."""
    arms = subject.arms
    arms.use_kernels()
    with (
        ledger.count_calls(arms.sites) as calls,
        ledger.count_attention(subject.attention_implementation) as attention_calls,
        features.watch() as asked,
    ):
        subject.first_pass = exercise(subject)
    entries = _layer_entries(subject, arms.sites, calls)
    entries += _attention_entry(subject, attention_calls)
    finding = _judge(subject, pins.checked(entries))
    finding.measures["first_pass_seconds"] = subject.first_pass_seconds
    missing = features.dropped(asked, features.functions()) if attention(subject.case.attention).hub else []
    if missing and finding.outcome is Outcome.PASS:
        text = f"{subject.attention_implementation}: {'; '.join(missing)}"
        return replace(finding, outcome=Outcome.FAIL, reason=Reason.FEATURE_DROPPED, message=text)
    return finding


def exercise(subject: Subject) -> passes.Pass:
    """The passes of the case's mode that call every kernel at least once: inputs with and without padding, a token.

    Returns what the first gave, which is the dense one of the mode.
    """
    first = subject.dense_pass()
    if not subject.case.mode.trains:
        subject.ask(passes.forward, "left-padded")
        if subject.record.generates:
            subject.ask(passes.decode_step, "dense")
    return first


def _layer_entries(subject: Subject, sites: list[Site], calls: Counter[str]) -> list[Engagement]:
    loaded = subject.loaded
    promised = {name: reference.promised for name, reference in loaded.promised.items()}
    device, mode = subject.backend.device.value, kernel_mode(subject.case.mode)

    def why(site: Site) -> tuple[Reason, str]:
        return ledger.fallback_reason(site, mode, device, loaded.mapping)

    entries = ledger.write(sites, calls, promised, why)
    if loaded.mapping is not None:
        # Names outside the mapping stay PyTorch as they should; one that is bound all the same is worth a line.
        entries = [entry for entry in entries if entry.name in promised or entry.bound]
    absent = sorted(set(promised) - {entry.name for entry in entries})
    return [
        _excused(subject, entry, sites, {other.name for other in entries if other.bound and other.calls})
        for entry in entries
    ] + [
        Engagement(
            name=name, promised=promised[name], reason=Reason.NOT_REGISTERED, detail="the model has no such name"
        )
        for name in absent
    ]


def _excused(subject: Subject, entry: Engagement, sites: list[Site], active: set[str]) -> Engagement:
    """Mark a bound name that was not called for a reason that lies in the model, not in the kernel."""
    if entry.reason is not Reason.NOT_CALLED:
        return entry
    outer = next((site for site in sites if site.name in active and _all_inside(entry.name, site, sites)), None)
    if outer is not None:
        reason, detail = Reason.SHADOWED, f"lies inside {outer.name}, whose own kernel does its work"
    elif entry.name not in called(subject.record, subject.case.mode):
        reason, detail = Reason.NOT_APPLICABLE, "the model calls this name in no pass of this mode"
    else:
        return entry
    return _with(entry, reason, detail)


def _all_inside(name: str, outer: Site, sites: list[Site]) -> bool:
    inner = [site for site in sites if site.name == name]
    outers = [site.path for site in sites if site.name == outer.name and not site.is_function]
    return bool(outers) and name != outer.name and all(_within(site.path, outers) for site in inner)


def _within(path: str, outers: Iterable[str]) -> bool:
    return any(path == outer or path.startswith(f"{outer}.") for outer in outers)


def _with(entry: Engagement, reason: Reason | None, detail: str) -> Engagement:
    fields: dict[str, Any] = {name: getattr(entry, name) for name in entry.__struct_fields__}
    return Engagement(**{**fields, "reason": reason, "detail": detail})


def _attention_entry(subject: Subject, calls: Counter[str]) -> list[Engagement]:
    implementation = subject.attention_implementation
    if implementation is None:
        return []
    if not attention(subject.case.attention).hub and subject.case.mapping != "pytorch":
        return []
    if not attention(subject.case.attention).hub:
        # Torch's own function: its calls are worth a line, but it comes from no repository and proves no kernel.
        return [Engagement(name="attention", promised="pytorch", detail=implementation, calls=sum(calls.values()))]
    functions = ledger.flash_functions()
    source = next((found for function in functions if (found := ledger.origin(function)) is not None), None)
    total = sum(calls.values())
    return [
        Engagement(
            name="attention",
            promised=implementation,
            resolved=source.describe("+".join(sorted(calls)) or "flash") if source else None,
            digest=source.digest if source else None,
            signature=source.signature if source else None,
            modules=1,
            bound=int(source is not None),
            calls=total,
            reason=None if source and total else Reason.NOT_CALLED,
            detail=None if source and total else "the attention function that ran is not the kernel's",
        )
    ]


def _judge(subject: Subject, entries: list[Engagement]) -> Finding:
    evidence = tuple(entries)
    forged = next((entry for entry in entries if (entry.signature or "").startswith(INVALID)), None)
    if forged is not None:
        text = f"{forged.name}: the signature of {forged.resolved} is {forged.signature}; get the kernel anew"
        return Finding(Outcome.FAIL, Reason.BAD_SIGNATURE, text, evidence=evidence)
    idle = (Reason.SHADOWED, Reason.NOT_APPLICABLE, Reason.NOT_REGISTERED)
    failed = [
        entry
        for entry in entries
        if entry.reason is not None
        and entry.reason not in idle
        # What nobody asked for by name and the default mapping does not promise for this device is no fallback.
        and not (entry.promised == "pytorch" and entry.reason in NOT_PROMISED)
    ]
    if failed:
        first = failed[0]
        return Finding(
            Outcome.HARNESS_ERROR if first.reason is Reason.HUB_AWAY else Outcome.FALLBACK,
            first.reason,
            f"{first.name}: {first.promised} was asked for, and {first.bound} of {first.modules} modules have it, with "
            f"{first.calls} calls ({first.reason}). {first.detail or ''}",
            evidence=evidence,
        )
    engaged = [entry for entry in entries if entry.calls]
    if engaged:
        return Finding(
            Outcome.PASS,
            message="; ".join(f"{entry.name}: {entry.calls} calls" for entry in engaged),
            measures={"calls": sum(entry.calls for entry in engaged)},
            evidence=evidence,
        )
    reason = next((entry.reason for entry in entries if entry.reason is not None), Reason.NOT_REGISTERED)
    return Finding(
        Outcome.NOT_RUN,
        reason,
        f"the mapping promises no kernel for this model on {subject.backend.device} in {subject.case.mode}: "
        + ("; ".join(f"{entry.name} {entry.reason}" for entry in entries) or "the model registers no name"),
        evidence=evidence,
    )
