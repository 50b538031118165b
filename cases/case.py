"""The frozen record ``Case``: one point in the space of models, dtypes, modes, attention implementations and mappings.

Its id is literal and stable (``qwen3-tiny/bf16/inference/sdpa/bundled``). The device is a coordinate of the run and
never part of the id, so that results of several devices can be joined on it.
"""

from dataclasses import dataclass

from cases.axes import DType, Mode

__all__ = ["Case"]


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One model, loaded in one way. Fields are the names of records in ``models``, ``attention`` and ``mappings``."""

    model: str
    dtype: DType
    mode: Mode
    attention: str
    mapping: str

    @property
    def id(self) -> str:
        """The five coordinates, joined by slashes."""
        return f"{self.model}/{self.dtype}/{self.mode}/{self.attention}/{self.mapping}"

    @classmethod
    def from_id(cls, text: str) -> "Case":
        """Read an id back.

        Raises:
            ValueError: the text has not five parts, or a dtype or mode is unknown.
        """
        parts = text.split("/")
        if len(parts) != 5:
            raise ValueError(f"{text!r} is no case id: expected MODEL/DTYPE/MODE/ATTENTION/MAPPING")
        model, dtype, mode, attention, mapping = parts
        for name, value, kind in (("dtype", dtype, DType), ("mode", mode, Mode)):
            if value not in list(kind):
                raise ValueError(f"{text!r}: no {name} {value!r}; there are {', '.join(kind)}")
        return cls(model, DType(dtype), Mode(mode), attention, mapping)
