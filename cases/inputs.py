"""Input recipes: which tokens a model sees. Shapes only: ``suite`` draws the tensors from the seed here."""

from dataclasses import dataclass

__all__ = ["INPUTS", "SEED", "Inputs"]

SEED = 20_261_130
"""Every draw of a run starts here, so that two machines see the same tokens and weights."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """A batch of token ids, ``rows`` × ``tokens``, of which row i starts with ``padding[i]`` padded positions."""

    name: str
    rows: int
    tokens: int
    padding: tuple[int, ...]
    reason: str


INPUTS: dict[str, Inputs] = {
    record.name: record
    for record in (
        Inputs(
            "dense", 2, 48, (0, 0), "no mask, so flash kernels take their dense function; longer than the zoo's windows"
        ),
        Inputs(
            "padded", 2, 48, (0, 7), "left padding: flash kernels take their varlen function, positions differ per row"
        ),
    )
}
