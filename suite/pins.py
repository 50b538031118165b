"""Asked for, resolved, loaded: whether the revision that was loaded is the one that the pin stands for.

The ledger says what was asked for (``org/repo@v2:Norm``) and which commit the code comes from. Between them stands the
Hub, which says what commit the pin means. A kernel of another commit is not the kernel that was asked for, however well
it computes.
"""

import functools
import re
from collections.abc import Callable, Iterable

import msgspec
from huggingface_hub import HfApi
from transformers import modeling_flash_attention_utils as flash

from reports.record import Engagement, Reason

__all__ = ["checked", "commit_of"]

_ASKED = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<pin>[^:]+))?(?::.*)?")
_LOADED = re.compile(r"(?P<repository>[^@:]+)@(?P<commit>[0-9a-f]{40}):.*")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@functools.lru_cache(maxsize=512)
def commit_of(repository: str, pin: str) -> str | None:
    """The commit that the Hub says a branch, tag or commit is; None if there is no Hub to ask, or it does not know."""
    if _COMMIT.fullmatch(pin):
        return pin
    try:
        refs = HfApi().list_repo_refs(repository, repo_type="kernel")
    except Exception:  # offline, unknown, or a Hub that fails: then nothing can be said
        return None
    return next((ref.target_commit for ref in (*refs.tags, *refs.branches) if ref.name == pin), None)


def default_pin(repository: str) -> str:
    """What an attention kernel without a pin is pinned to."""
    return f"v{getattr(flash, 'FLASH_ATTN_KERNEL_VERSIONS', {}).get(repository, 1)}"


def checked(entries: Iterable[Engagement], commit: Callable[[str, str], str | None] = commit_of) -> list[Engagement]:
    """The entries, those that were led astray marked WRONG_REVISION. Local kernels and PyTorch have no pin."""
    return [_checked(entry, commit) for entry in entries]


def _checked(entry: Engagement, commit: Callable[[str, str], str | None]) -> Engagement:
    asked, loaded = _ASKED.fullmatch(entry.promised), _LOADED.fullmatch(entry.resolved or "")
    if asked is None or loaded is None or entry.reason is not None:
        return entry
    repository, pin = asked["repository"], asked["pin"] or default_pin(asked["repository"])
    wanted = commit(repository, pin)
    if loaded["repository"] != repository:
        detail = f"{repository} was asked for, and {loaded['repository']} is loaded"
    elif wanted is not None and wanted != loaded["commit"]:
        detail = f"{pin} is commit {wanted}, and {loaded['commit']} is loaded"
    else:
        return entry
    return msgspec.structs.replace(entry, reason=Reason.WRONG_REVISION, detail=detail)
