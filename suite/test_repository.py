"""Is each kernel repository that this run uses sound, before anything of it is called?"""

from typing import TYPE_CHECKING

from cases.repositories import RepositoryInUse
from suite.outcomes import raise_for

if TYPE_CHECKING:
    from suite.bench import Bench


def test_repository(repository: RepositoryInUse, bench: "Bench") -> None:
    """Are metadata, digest, purity, signatures and flags of the kernel what loading and calling it needs?"""
    raise_for(bench.inspect(repository))
