"""What a Hub says of the revisions of one kernel repository: their names, what each offers, the commits between two.

Asks and reads; nothing of a repository is run, and nothing is downloaded before its publisher is known to be trusted.
Imports no torch. huggingface_hub reads its settings when it is imported, so that is left until the Hub is open.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases.ladder import Ladder, Rung, rungs
from reports.record import Outcome, Reason
from suite.finding import Finding, Measure
from suite.kernel_options import OptionError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

__all__ = ["Offer", "between", "find", "finding", "offer"]

FLAGS = ("has_backward", "can_torch_compile")


@dataclass(frozen=True, slots=True)
class Offer:
    """What one revision has, as far as its files say."""

    builds: tuple[str, ...]
    """Names of its build variants, sorted."""
    fitting: tuple[str, ...]
    """Those for the type of the device."""
    parameters: tuple[str, ...] | None
    """Names of the parameters of the layer's forward; None where the sources do not define it."""
    flags: Mapping[str, str]
    """What the class says of itself: by flag the value as it is written, ``not said`` where it says nothing."""
    named: bool
    """Whether the name of the layer stands anywhere in the sources."""
    classes: tuple[str, ...]
    """The classes that its sources define."""

    @property
    def measures(self) -> dict[str, Measure]:
        """What of it is recorded."""
        return {
            "builds": ", ".join(self.builds)[:5000],
            "parameters": None if self.parameters is None else ", ".join(self.parameters)[:500],
            **self.flags,
        }


def find(ladder: Ladder, trusted: frozenset[str], device: str, hub: str) -> tuple[Rung, ...]:
    """Every revision of the ladder's repository that has a name. ``hub`` is how messages call the Hub in use.

    Raises:
        OptionError: there is no such repository, none of its revisions has a name or the layer, its publisher is not
            trusted, or the Hub does not answer.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    from suite.hub_away import limit_waiting

    limit_waiting()
    api, where = HfApi(), f"--ladder {ladder.layer}={ladder.repository}:{ladder.name}"
    try:
        refs = api.list_repo_refs(ladder.repository, repo_type="kernel")
        found = rungs(
            {tag.name: tag.target_commit for tag in refs.tags},
            {branch.name: branch.target_commit for branch in refs.branches},
        )
        if not found:
            raise OptionError(
                f"{where}: the repository has no tag and no version branch (v1, v2, …), so there is nothing to climb; "
                f"test what it has with --kernel {ladder.layer}={ladder.repository}@main:{ladder.name}"
            )
        if ladder.repository not in trusted and not _vouched_for(api, ladder.repository):
            raise OptionError(
                f"{where}: the repository is not from a trusted publisher, and this would run its code; to allow that "
                f"give --trust {ladder.repository}"
            )
        _check_name(api, ladder, found, device, where)
    except RepositoryNotFoundError:
        tip = "it has bundled kernels only; try --hub online" if hub == "embedded" else "or it is a private one"
        raise OptionError(f"{where}: there is no such kernel repository on the Hub in use ({hub}); {tip}") from None
    except OptionError:
        raise
    except Exception as error:  # a Hub that is gone raises what the transport of the client raises
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise OptionError(f"{where}: the Hub in use ({hub}) was asked for its revisions: {text}") from None
    return found


def _vouched_for(api: "HfApi", repository: str) -> bool:
    """Whether the Hub vouches for the publisher; asked as kernels asks it before it loads anything."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        overview = api.get_organization_overview(repository.partition("/")[0])
    except HfHubHTTPError:  # a user, and no organization
        return False
    return bool(getattr(overview, "trustedKernelPublisher", False))


def _check_name(api: "HfApi", ladder: Ladder, found: tuple[Rung, ...], device: str, where: str) -> None:
    """That some revision has the layer: the newest is looked at first. The name is enough, since a class may come from
    anywhere."""
    newest: tuple[str, ...] = ()
    for rung in reversed(found):
        offered = offer(api, ladder, rung.commit, device)
        if offered.named:
            return
        newest = newest or offered.classes
    there = f"the newest has {', '.join(newest[:20])}" if newest else "none has any class"
    raise OptionError(f"{where}: no revision has a {ladder.name}; {there}")


def offer(api: "HfApi", ladder: Ladder, commit: str, device: str) -> Offer:
    """What a commit has for the layer and the type of device. Where no build is for it, the sources of another."""
    from suite.audit_hub import fits, parameters, sources

    files = api.list_repo_files(ladder.repository, repo_type="kernel", revision=commit)
    builds = tuple(sorted({path.split("/")[1] for path in files if path.startswith("build/") and path.count("/") > 1}))
    fitting = tuple(build for build in builds if fits(build, device))
    named, classes = False, list[str]()
    for source in sources(api, ladder.repository, commit, (fitting or builds)[-1], files) if builds else ():
        named = named or re.search(rf"\b{ladder.name}\b", source) is not None
        found = parameters(source, ladder.name)
        if found is not None:
            return Offer(builds, fitting, found, _flags(source, ladder.name), True, (ladder.name,))
        classes += [node.name for node in _classes(source)]
    return Offer(builds, fitting, None, {}, named, tuple(classes))


def _classes(source: str) -> Iterator[ast.ClassDef]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _flags(source: str, layer: str) -> dict[str, str]:
    found = dict.fromkeys(FLAGS, "not said")
    for node in next(node for node in _classes(source) if node.name == layer).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            value = getattr(node, "value", None)
            if isinstance(target, ast.Name) and target.id in FLAGS and value is not None:
                found[target.id] = ast.unparse(value)[:40]
    return found


def finding(ladder: Ladder, rung: Rung, device: str) -> Finding:
    """What the check of one rung finds: its place, its names, and what it offers, read and not run."""
    from huggingface_hub import HfApi

    offered = offer(HfApi(), ladder, rung.commit, device)
    measures: dict[str, Measure] = {
        "position": rung.position,
        "commit": rung.commit,
        "names": ", ".join(rung.names)[:500],
        **offered.measures,
    }
    listed = ", ".join(offered.builds)
    asked = f"{ladder.kernel(rung).promised} ({rung.commit[:10]})"
    if not offered.fitting:
        text = f"{asked} has no build for {device}; there are {listed or 'none'}"
        return Finding(Outcome.NOT_RUN, Reason.CANNOT_LOAD, text[:2000], measures)
    if not offered.named:
        text = f"{asked} has no {ladder.name}; there are {', '.join(offered.classes)[:500] or 'no classes'}"
        return Finding(Outcome.NOT_RUN, Reason.CANNOT_LOAD, text, measures)
    return Finding(Outcome.PASS, None, f"{asked}: builds {listed}"[:2000], measures)


def between(api: "HfApi", repository: str, lower: str, upper: str) -> tuple[str, ...]:
    """The commits on the way from one commit to a later one, which is the last of them; the first is not among them.

    Where the two lie on different branches the way begins with the commit at which these part; without one it is the
    later commit alone.
    """

    def history(commit: str) -> list[str]:
        listed = api.list_repo_commits(repository, repo_type="kernel", revision=commit)
        return [each.commit_id for each in listed]

    later = history(upper)
    if lower not in later:
        earlier = set(history(lower))
        parting = next((number for number, commit in enumerate(later) if commit in earlier), 0)
        return tuple(later[parting::-1])
    return tuple(later[: later.index(lower)][::-1])
