"""The attention axis: what is passed as ``attn_implementation``, and what PyTorch is measured against."""

from dataclasses import dataclass

from cases.mappings import BUNDLED_ATTENTION

__all__ = ["ATTENTIONS", "Attention", "attention", "attention_name"]


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention implementation. ``name`` is its spelling in case ids, where a slash would split."""

    name: str
    implementation: str | None
    """The value of ``attn_implementation``; None for models without attention."""
    hub: bool
    """Whether it is a kernel from the Hub, whose calls need proof."""
    requirements: tuple[str, ...]


ATTENTIONS: dict[str, Attention] = {
    record.name: record
    for record in (
        Attention("eager", "eager", False, ("attn.choose",)),
        Attention("sdpa", "sdpa", False, ("attn.default", "attn.gqa")),
        Attention("bundled", BUNDLED_ATTENTION, True, ("attn.hub", "attn.choose")),
        Attention("none", None, False, ()),
    )
}


def attention_name(implementation: str) -> str:
    """The case-id spelling of an axis value or a Hub string ``org/repo[@revision][:name]``."""
    return implementation.replace("/", "~")


def attention(name: str) -> Attention:
    """The record of a case-id spelling; any ``org~repo`` is a Hub kernel that the user named."""
    if name in ATTENTIONS:
        return ATTENTIONS[name]
    return Attention(name, name.replace("~", "/"), True, ("attn.hub", "attn.choose"))
