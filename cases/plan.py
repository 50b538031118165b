"""The plan: from the chosen axes to ``Case`` records and the properties checked of each.

The same options give the same plan on every machine; what a device cannot do is found out there and recorded, never
planned around. ``full`` is the product of the axes minus what cannot exist; ``core`` covers every pair of axis values
once (pairwise covering by covertable); ``smoke`` covers every value once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from typing import Any

from covertable import make

from cases.attention import ATTENTIONS, attention
from cases.axes import DType, Mode, Property, Tier
from cases.case import Case
from cases.mappings import MAPPINGS, KernelReference
from cases.models import MODELS, Model

__all__ = ["USER", "Selection", "build", "called", "given", "offered", "properties", "requirements"]

USER = "user"
"""Mapping name of the kernels given with ``--kernel``."""

WITHOUT_CASE = ("statement/", "repository/", "ladder/")
"""How the ids of checks begin that are about no case. They can be asked for by id like a case."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What the user chose. An empty tuple means: everything the tier has on that axis."""

    tier: Tier = Tier.CORE
    models: tuple[str, ...] = ()
    dtypes: tuple[DType, ...] = ()
    modes: tuple[Mode, ...] = ()
    attentions: tuple[str, ...] = ()
    mappings: tuple[str, ...] = ()
    kernels: tuple[tuple[str, KernelReference], ...] = ()
    """Pairs (registered name, kernel) of ``--kernel``; when given, only these are tested."""
    cases: tuple[str, ...] = ()
    """Literal case ids; when given, exactly these."""


def given(mapping: str) -> bool:
    """Whether a mapping is the user's own: that of ``--kernel``, or of a revision on a ladder (``user@v2.0.0``)."""
    return mapping.partition("@")[0] == USER


def called(model: Model, mode: Mode) -> frozenset[str]:
    """Registered names that the engagement pass of a mode calls: in inference a prompt and one more token."""
    if mode.trains:
        return frozenset(model.called_in_training)
    return frozenset(model.registers) | frozenset(model.called_in_decode)


def offered(entries: Mapping[str, KernelReference], mode: Mode) -> dict[str, KernelReference]:
    """The entries that claim to serve a mode: kernels binds no other, and raises or falls back if asked."""
    return {
        name: reference
        for name, reference in entries.items()
        if (reference.backward or not mode.trains) and (reference.compiles or not mode.compiles)
    }


def exists(model: Model, dtype: DType, mode: Mode, name: str, mapping: str, kernels: frozenset[str]) -> bool:
    """Whether the combination makes sense at all; the only place where the product is thinned."""
    choice = attention(name)
    if choice.name in ATTENTIONS and name not in model.attentions:
        return False
    if choice.name not in ATTENTIONS and "bundled" not in model.attentions:
        return False
    if model.timing and dtype is DType.FLOAT16:
        # CPUs emulate float16, at real widths for minutes.
        return False
    if given(mapping):
        return not kernels.isdisjoint(model.carries)
    if mapping == "pytorch":
        # Without layer kernels there must be an attention implementation to hold against another one.
        return name not in ("eager", "none")
    entries = MAPPINGS[mapping].entries
    return entries is None or not called(model, mode).isdisjoint(offered(entries, mode))


def build(selection: Selection) -> tuple[Case, ...]:
    """All cases of a selection, ordered so that neighbours share a model and a dtype.

    Raises:
        ValueError: a case id in ``selection.cases`` names a record that does not exist.
    """
    if selection.cases:
        return tuple(_literal(text) for text in selection.cases if not text.startswith(WITHOUT_CASE))
    axes = _axes(selection)
    valid = _validity(selection)
    if selection.tier is Tier.FULL:
        rows: Iterable[tuple[str, DType, Mode, str, str]] = (row for row in product(*axes) if valid(row))
    else:
        rows = _covering(axes, valid, strength=2 if selection.tier is Tier.CORE else 1)
    models, order = list(MODELS), list(MAPPINGS)
    ranked = sorted(
        {Case(*row) for row in rows},
        key=lambda case: (
            models.index(case.model),
            list(DType).index(case.dtype),
            list(Mode).index(case.mode),
            case.attention,
            order.index(case.mapping) if case.mapping in order else -1,
        ),
    )
    return tuple(ranked)


Axes = tuple[list[str], list[DType], list[Mode], list[str], list[str]]
Row = tuple[str, DType, Mode, str, str]


def _axes(selection: Selection) -> Axes:
    modes = [mode for mode in Mode if selection.tier is Tier.FULL or not mode.compiles]
    mappings = [USER] if selection.kernels else list(selection.mappings or MAPPINGS)
    return (
        list(selection.models or MODELS),
        list(selection.dtypes or DType),
        list(selection.modes or modes),
        list(selection.attentions or ATTENTIONS),
        mappings,
    )


def _validity(selection: Selection) -> Callable[[Row], bool]:
    kernels = frozenset(name for name, _ in selection.kernels)
    # A training step of a real width takes seconds on a CPU: it is timed at night, or when asked for.
    widths_train = selection.tier is Tier.FULL or bool(selection.modes)
    # One kernel alone at real widths takes as long as all together, which is what most users have.
    widths_alone = selection.tier is Tier.FULL or bool(selection.mappings)
    chosen = bool(selection.models or selection.mappings or selection.attentions or selection.kernels)

    @cache
    def valid(model: str, dtype: DType, mode: Mode, name: str, mapping: str) -> bool:
        record = MODELS[model]
        if record.timing and mode.trains and not widths_train:
            return False
        if record.timing and mapping.startswith("only-") and not widths_alone:
            return False
        if record.timing and selection.tier is Tier.SMOKE and not chosen and (mapping, name) != ("default", "sdpa"):
            # Smoke asks whether it runs, in half a minute: real widths as a user gets them without choosing anything.
            return False
        return exists(record, dtype, mode, name, mapping, kernels)

    return lambda row: valid(*row)


def _covering(axes: Axes, valid: Callable[[Row], bool], strength: int) -> Iterator[Row]:
    """Rows such that every possible combination of ``strength`` axis values is in one of them.

    Strength 1 needs no library: it is one row for each value.
    """
    if strength == 1:
        yield from _each_value_once(axes, valid)
        return
    possible = [row for row in product(*axes) if valid(row)]
    if not possible:
        return
    # Told only which whole rows are possible, covertable runs into dead ends and needs twice as many rows. Told what
    # is possible on any two and three axes, it sees a dead end before it is in it.
    constraints = [_projection(possible, names) for size in (2, 3, 5) for names in combinations(range(len(axes)), size)]
    for row in make([list(axis) for axis in axes], strength=2, constraints=constraints, salt="core"):
        yield row[0], row[1], row[2], row[3], row[4]


def _projection(possible: list[Row], names: tuple[int, ...]) -> dict[str, Any]:
    """The constraint, in covertable's notation, that some possible row has these values on these axes."""
    seen = {tuple(row[name] for name in names) for row in possible}

    def holds(row: Mapping[int, Any]) -> bool:
        return tuple(row[name] for name in names) in seen

    return {"operator": "fn", "requires": list(names), "evaluate": holds}


def _each_value_once(axes: Axes, valid: Callable[[Row], bool]) -> Iterator[Row]:
    """Greedy: take the valid row with most values not yet seen, until no value is left that any row can show.

    Among equals the row with the least used values wins, so that no axis stands still while another is gone through.
    """
    used: Counter[tuple[int, object]] = Counter()
    candidates = [(row, tuple(enumerate(row))) for row in product(*axes) if valid(row)]
    reachable = {value for _, values in candidates for value in values}
    while reachable - set(used):

        def worth(candidate: tuple[Row, tuple[tuple[int, object], ...]]) -> tuple[int, int]:
            return sum(value not in used for value in candidate[1]), -sum(used[value] for value in candidate[1])

        row, values = max(candidates, key=worth)
        used.update(values)
        yield row


def properties(case: Case) -> tuple[Property, ...]:
    """The properties checked of a case, in the order of checking."""
    model = MODELS[case.model]
    chosen = [Property.LOAD, Property.ENGAGE]
    # At real widths, where a probe costs seconds, all kernels are probed together.
    whole = case.mapping == "bundled" or given(case.mapping)
    affordable = not model.timing or whole
    if affordable and not case.mode.compiles and (case.mapping != "pytorch" or attention(case.attention).hub):
        # A kernel is probed by itself; what torch.compile makes of it is its own property.
        chosen.append(Property.PROBE)
    chosen.append(Property.FORWARD)
    if case.mode.trains:
        chosen.append(Property.GRADIENT)
    if case.dtype is DType.FLOAT32 and whole and not (case.mode.compiles or model.timing):
        # What becomes of a binding depends on the route, which follows from mapping and mode: one dtype shows it.
        chosen.append(Property.STATE)
    if not model.timing:
        # A race or a wrong cache shows in a tiny model as well, in a hundredth of the time.
        chosen.append(Property.DETERMINISM)
    if case.mode.compiles:
        chosen.append(Property.COMPILE)
    elif model.generates and not case.mode.trains and not model.timing:
        chosen.append(Property.GENERATE)
    chosen.append(Property.MEMORY)
    if model.timing or whole:
        # Shapes decide speedups: one kernel alone is timed at real widths, where its share of the time is the real one.
        chosen.append(Property.SPEED)
    return tuple(chosen)


def requirements(case: Case, checked: Property) -> tuple[str, ...]:
    """Ids of the documented statements (``requirements.toml``) that a check of this case bears on."""
    mapping = MAPPINGS.get(case.mapping)
    cited = set(mapping.requirements if mapping else ("config.layer", "local.load"))
    cited |= set(attention(case.attention).requirements)
    if attention(case.attention).hub and case.mapping != "pytorch":
        cited.add("attn.with_layers")
    cited.add("mode.compile" if case.mode.compiles else "mode.follow")
    cited |= set(_OF_PROPERTY.get(checked, ()))
    return tuple(sorted(cited))


_OF_PROPERTY: dict[Property, tuple[str, ...]] = {
    Property.ENGAGE: ("layers.fallback",),
    Property.FORWARD: ("determinism.differs",),
    Property.DETERMINISM: ("determinism.match", "determinism.flags"),
    Property.GENERATE: ("infer.generate",),
}


def _literal(text: str) -> Case:
    case = Case.from_id(text)
    if case.model not in MODELS:
        raise ValueError(f"{text!r}: no model {case.model!r} in the zoo; there are {', '.join(MODELS)}")
    if case.mapping not in MAPPINGS and not given(case.mapping):
        raise ValueError(f"{text!r}: no mapping {case.mapping!r}; there are {', '.join(MAPPINGS)} and {USER}")
    model = MODELS[case.model]
    if not exists(model, case.dtype, case.mode, case.attention, case.mapping, frozenset(model.carries)):
        raise ValueError(
            f"{text!r} cannot exist: {case.model} has attentions {', '.join(model.attentions)} and "
            f"registers {', '.join(sorted(called(model, case.mode)))}"
        )
    return case
