"""Does an attention repository have the functions that Transformers calls, with the parameters that it passes?

Transformers looks at the signature of the function once and leaves out what it does not take: a window or a sink that
the kernel has no parameter for is dropped without a word, and only a soft-cap raises, from 5.21 on
(design/upstream-facts, V13). Whether a model needs a feature is for the checks of its cases; here they are listed.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FEATURES", "AttentionReport", "check"]

FEATURES: Mapping[str, tuple[str, ...]] = {
    "dropout_p": ("dropout_p",),
    "window_size": ("window_size",),
    "softcap": ("softcap",),
    "s_aux": ("s_aux", "learnable_sink"),
    "deterministic": ("deterministic",),
}
"""Parameters that Transformers passes if the function takes them, by either name: dropout, window, soft-cap, sinks."""

ALWAYS = ("causal", "softmax_scale")
"""What is passed in every call, by name."""

VARLEN = ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
"""What is passed by name besides, where sequences of several lengths lie end to end."""

DENSE_FUNCTION, VARLEN_FUNCTION = "flash_attn_func", "flash_attn_varlen_func"

_OTHER_ENTRIES = ("sparse_atten_func", "flash_attn_forward")
"""Kernels with one of these bring their own way of being called, which this module knows nothing of."""


@dataclass(slots=True)
class AttentionReport:
    """``problems`` make some call fail; ``missing`` are features that are left out silently."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def check(module: Any) -> AttentionReport:
    """Look at the two functions of an imported attention kernel."""
    report = AttentionReport()
    if not hasattr(module, VARLEN_FUNCTION) and any(hasattr(module, name) for name in _OTHER_ENTRIES):
        report.notes.append(f"brings its own entry instead of {VARLEN_FUNCTION}; its parameters are not checked")
        return report
    supported: dict[str, frozenset[str]] = {}
    for name, needed in ((DENSE_FUNCTION, ALWAYS), (VARLEN_FUNCTION, (*ALWAYS, *VARLEN))):
        function = getattr(module, name, None)
        if not callable(function):
            report.problems.append(f"there is no function {name}, which Transformers calls; export it from __init__.py")
            continue
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError) as error:
            report.problems.append(f"{name} has no signature that Python can read ({error}); wrap it in a function")
            continue
        _check_parameters(name, parameters, needed, report)
        supported[name] = frozenset(
            feature for feature, names in FEATURES.items() if any(each in parameters for each in names)
        )
    if len(supported) == 2:
        _check_alike(supported[DENSE_FUNCTION], supported[VARLEN_FUNCTION], report)
    everywhere = frozenset(FEATURES).intersection(*supported.values()) if supported else frozenset()
    report.missing = [feature for feature in FEATURES if feature not in everywhere]
    return report


def _check_parameters(
    name: str, parameters: Mapping[str, inspect.Parameter], needed: tuple[str, ...], report: AttentionReport
) -> None:
    variadic = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    absent = [each for each in needed if each not in parameters]
    if absent and not variadic:
        report.problems.append(
            f"{name} takes no {', '.join(absent)}, which Transformers passes by name in every call; add it"
        )
    if variadic:
        report.notes.append(f"{name} takes **kwargs: what it ignores there cannot be seen, and is not passed either")
    positional = [
        parameter.name
        for parameter in parameters.values()
        if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]
    order = [each[0].lower() for each in positional[:3]]
    if order != ["q", "k", "v"] and sorted(order) == ["k", "q", "v"]:
        report.problems.append(
            f"{name} begins with {', '.join(positional[:3])}; Transformers passes query, key, value by position"
        )
    passed = {*needed, "dropout_p", "deterministic"}
    required = [
        parameter.name
        for parameter in list(parameters.values())[3:]
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        and parameter.name not in passed
    ]
    if required:
        report.problems.append(
            f"{name} requires {', '.join(required)}, which Transformers does not pass; give it a default"
        )


def _check_alike(dense: frozenset[str], varlen: frozenset[str], report: AttentionReport) -> None:
    """Transformers asks the function for several lengths what it takes, and passes that to both."""
    for feature in FEATURES:
        if feature in varlen and feature not in dense:
            report.problems.append(
                f"{VARLEN_FUNCTION} takes {feature} and {DENSE_FUNCTION} does not, and Transformers passes to both "
                "what the first takes: calls without padding raise TypeError; give both the same parameters"
            )
        elif feature in dense and feature not in varlen:
            report.notes.append(
                f"{DENSE_FUNCTION} takes {feature} and {VARLEN_FUNCTION} does not, so it is passed to neither"
            )
