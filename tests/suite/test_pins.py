"""Whether the revision that was loaded is the one that was asked for."""

from pathlib import Path

import pytest
from huggingface_hub import HfApi

from reports.record import Engagement, Reason
from suite import pins
from suite.documented.repositories import write
from suite.hub import EmbeddedHub, Repository

ONE, TWO = "1" * 40, "2" * 40
COMMITS = {("org/norm", "v2"): TWO, ("org/norm", "release/2"): TWO, ("org/attention", "v1"): ONE}


def entry(promised: str, resolved: str | None, reason: Reason | None = None) -> Engagement:
    return Engagement(name="RMSNorm", promised=promised, resolved=resolved, modules=1, bound=1, calls=1, reason=reason)


@pytest.mark.parametrize(
    ("promised", "resolved", "reason"),
    [
        ("org/norm@v2:Norm", f"org/norm@{TWO}:Norm (torch-cpu)", None),
        ("org/norm@v2:Norm", f"org/norm@{ONE}:Norm (torch-cpu)", Reason.WRONG_REVISION),
        ("org/norm@release/2:Norm", f"org/norm@{ONE}:Norm (torch-cpu)", Reason.WRONG_REVISION),
        (f"org/norm@{ONE}:Norm", f"org/norm@{TWO}:Norm (torch-cpu)", Reason.WRONG_REVISION),
        ("org/norm@v2:Norm", f"other/norm@{TWO}:Norm (torch-cpu)", Reason.WRONG_REVISION),
        ("org/attention", f"org/attention@{ONE}:flash_attn_func (torch-cpu)", None),
        ("org/attention", f"org/attention@{TWO}:flash_attn_func (torch-cpu)", Reason.WRONG_REVISION),
        ("org/norm@unknown:Norm", f"org/norm@{TWO}:Norm (torch-cpu)", None),
        ("/home/me/norm:Norm", "/home/me/norm:Norm (torch-cpu)", None),
        ("pytorch", f"org/norm@{TWO}:Norm (torch-cpu)", None),
        ("pytorch", None, None),
    ],
)
def test_a_pin_that_led_elsewhere_is_found(promised: str, resolved: str | None, reason: Reason | None) -> None:
    """Fault: a result of another revision under the name of the one that was asked for."""
    (found,) = pins.checked([entry(promised, resolved)], lambda *pair: COMMITS.get(pair) or _as_it_is(pair[1]))
    assert found.reason is reason
    assert (found.detail is None) is (reason is None)


def _as_it_is(pin: str) -> str | None:
    return pin if len(pin) == 40 else None


def test_a_reason_that_is_known_is_kept() -> None:
    """Fault: a kernel that never ran, reported as one of the wrong revision."""
    (found,) = pins.checked([entry("org/norm@v2:Norm", f"org/norm@{ONE}:Norm (x)", Reason.NOT_CALLED)], lambda *_: TWO)
    assert found.reason is Reason.NOT_CALLED


def test_a_pin_is_looked_up_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: a branch with a slash or a tag that is not found, and so never checked."""
    paths = {
        name: write(tmp_path / name, "norm", {"__init__.py": f"VERSION = {name!r}\n"}, ["cpu"]) for name in ("v1", "v2")
    }
    repository = Repository("org/norm", {**paths, "release/2": paths["v2"]}, {"v1.0.0": "v1"})
    with EmbeddedHub([repository]) as hub:
        monkeypatch.setattr(pins, "HfApi", lambda: HfApi(endpoint=hub.endpoint))
        pins.commit_of.cache_clear()
        for pin in ("v1", "v2", "release/2", "v1.0.0"):
            assert pins.commit_of("org/norm", pin) == hub.commit("org/norm", pin)
        assert pins.commit_of("org/norm", "v3") is None
        assert pins.commit_of("org/none", "v1") is None
    pins.commit_of.cache_clear()
    assert pins.commit_of("org/norm", "v1") is None
