"""Does the check of a kernel repository find what is wrong with it, and nothing where nothing is?"""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from cases import plan, repositories
from cases.axes import Device, Tier
from cases.kernels import ROOT, Build, write
from cases.mappings import BUNDLED, KernelReference
from cases.repositories import RepositoryInUse
from reports.record import Outcome, Reason
from suite import attention_functions, repository_files
from suite.device import BACKENDS
from suite.finding import Finding
from suite.loading import Loader
from suite.repository import Repositories

NORM = """
import torch
from torch import nn

__all__ = ["Norm"]


def normalise(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


class Norm(nn.Module):
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states):
        return normalise(hidden_states, self.weight, self.variance_epsilon)
"""

ROTARY = """
from torch import nn


class Rotary(nn.Module):
    has_backward = True

    def forward(self, q, k, cos, sin, unsqueeze_dim=1):
        return q * cos + q * sin, k * cos + k * sin
"""

ATTENTION = """
def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                    deterministic=False, s_aux=None):
    return q


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
                           softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, deterministic=False,
                           s_aux=None):
    return q
"""


def repository(folder: Path, source: str = NORM, name: str = "norm", backend: str = "cpu") -> Path:
    """A kernel repository with one layer file, metadata and digest, whose id is its name, content and folder."""
    build = Build(folder / name / "build" / f"torch-{backend}", name, 1, backend)
    build.folder.mkdir(parents=True)
    layers = "class" in source
    (build.folder / "__init__.py").write_text(
        'from . import layers\n\n__all__ = ["layers"]\n'
        if layers
        else "from .attention import *\nfrom .attention import flash_attn_func, flash_attn_varlen_func\n"
    )
    file = "layers.py" if layers else "attention.py"
    (build.folder / file).write_text(f"{source}\n# {folder}\n")
    cpu = Build(build.folder.parent / "torch-cpu", name, 1, "cpu")
    if backend == "cpu":
        write(cpu)
    else:
        (build.folder / "metadata.json").write_text(bare_metadata(build))
    return folder / name


def bare_metadata(build: Build) -> str:
    """Metadata without a digest, which ``write`` makes for links to the CPU build only."""
    return json.dumps(
        {
            "id": f"_{build.name}_{build.backend}",
            "name": build.name,
            "version": 1,
            "license": "Apache-2.0",
            "python-depends": [],
            "backend": {"type": build.backend},
        }
    )


def edit(root: Path, **changes: object) -> None:
    """Change entries of the metadata; None removes one."""
    path = root / "build" / "torch-cpu" / "metadata.json"
    document = json.loads(path.read_text())
    document.update({key.replace("_", "-"): value for key, value in changes.items()})
    path.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))


def layer(name: str, root: Path, layer: str) -> RepositoryInUse:
    return RepositoryInUse(name, KernelReference(str(root), layer))


def check(*in_use: RepositoryInUse) -> Finding:
    """What is found about the first of the repositories."""
    loader = Loader(BACKENDS[Device.CPU], ROOT)
    return Repositories(loader, in_use).check(in_use[0])


def check_norm(root: Path) -> Finding:
    return check(layer("RMSNorm", root, "Norm"))


def violations(finding: Finding) -> str:
    """The message of a failed check, which must list as many violations as it counts."""
    assert finding.outcome is Outcome.FAIL, finding
    assert finding.reason is Reason.REJECTED
    assert len(re.findall(r"^\d+\. ", finding.message, re.MULTILINE)) == finding.measures["violations"]
    return finding.message


def test_every_bundled_repository_is_sound() -> None:
    """A check that is red for a healthy kernel; or a bundled kernel whose parameters, flags or digest have drifted."""
    in_use = repositories.in_use(plan.build(plan.Selection(tier=Tier.CORE)), {})
    found = Repositories(Loader(BACKENDS[Device.CPU], ROOT), in_use)
    layers = [each for each in in_use if each.kernel is not None]
    assert {each.name for each in layers} == set(BUNDLED)
    findings = {each.name: found.check(each) for each in layers}
    assert {name: finding.message for name, finding in findings.items() if finding.outcome is not Outcome.PASS} == {}
    assert all(finding.measures["digest"] == "matches" for finding in findings.values())


def test_a_healthy_repository_passes_with_its_facts(tmp_path: Path) -> None:
    """A report that says PASS and not of what."""
    finding = check_norm(repository(tmp_path))
    assert finding.outcome is Outcome.PASS, finding.message
    assert finding.measures["variant"] == "torch-cpu"
    assert finding.measures["has_backward"] == "claimed"
    assert finding.measures["classes"] == 7


def test_flags_without_proof_are_recorded_as_such(tmp_path: Path) -> None:
    """``has_backward`` that is true only because nobody said otherwise (V27) looks like a claim."""
    finding = check_norm(repository(tmp_path, NORM.replace("    has_backward = True\n", "")))
    assert finding.measures["has_backward"] == "claimed by default"


@pytest.mark.parametrize("backend", ["cuda", "metal"])
def test_a_build_for_another_device_is_announced_and_left_to_the_ledger(tmp_path: Path, backend: str) -> None:
    """S22: the library falls back without a word; here it is said before anything runs, and failed once, by engage."""
    if backend in ("cuda", "metal") and torch.cuda.is_available():
        pytest.skip("this torch would load it")
    finding = check_norm(repository(tmp_path, backend=backend))
    assert (finding.outcome, finding.reason) == (Outcome.NOT_RUN, Reason.CANNOT_LOAD)
    assert f"there is torch-{backend}" in finding.message


@pytest.mark.parametrize(
    ("decorator", "imports"),
    [
        ("@torch.no_grad()", ""),
        ("@torch.no_grad", ""),
        ("@torch.inference_mode()", ""),
        ("@quietly()", "from torch import no_grad as quietly\n"),
        ("@torch.set_grad_enabled(False)", ""),
    ],
)
def test_a_forward_without_gradients_that_does_not_say_so_fails(tmp_path: Path, decorator: str, imports: str) -> None:
    """S06: nothing in the layer or below it is trained, and nothing says so. The decorator's name is no clue."""
    source = imports + NORM.replace("    def forward", f"    {decorator}\n    def forward").replace(
        "    has_backward = True\n", ""
    )
    assert "gives no gradients" in violations(check_norm(repository(tmp_path, source)))
    declared = source.replace("can_torch_compile = True", "can_torch_compile = True\n    has_backward = False")
    assert check_norm(repository(tmp_path / "declared", declared)).outcome is Outcome.PASS


@pytest.mark.parametrize(
    "body",
    [
        "with torch.no_grad():\n            return normalise(hidden_states, self.weight, self.variance_epsilon)",
        "with torch.no_grad():\n            y = normalise(hidden_states, self.weight, 1e-6)\n"
        "        return y.to(hidden_states.dtype)",
        "return normalise(hidden_states, self.weight, self.variance_epsilon).detach()",
    ],
)
def test_a_body_without_gradients_fails_too(tmp_path: Path, body: str) -> None:
    """S06, written without a decorator."""
    source = NORM.replace("return normalise(hidden_states, self.weight, self.variance_epsilon)", body)
    assert "gives no gradients" in violations(check_norm(repository(tmp_path, source)))


def test_a_part_without_gradients_is_no_fault(tmp_path: Path) -> None:
    """Indices and statistics need no gradient: a check that is red for them would be switched off."""
    body = "with torch.no_grad():\n            eps = self.variance_epsilon\n        "
    source = NORM.replace(
        "return normalise(hidden_states, self.weight, self.variance_epsilon)",
        body + "return normalise(hidden_states, self.weight, eps)",
    )
    assert check_norm(repository(tmp_path, source)).outcome is Outcome.PASS


def test_an_extra_parameter_fails_with_its_name_and_every_class(tmp_path: Path) -> None:
    """S23: a TypeError at load, which does not say which of the two is wrong."""
    text = violations(check_norm(repository(tmp_path, NORM.replace("hidden_states):", "hidden_states, residual):"))))
    assert "too many: residual" in text
    assert "GptOssRMSNorm" in text
    assert "and 4 more" in text


def test_exchanged_parameters_fail(tmp_path: Path) -> None:
    """V26: query and key exchanged have the same number and kind, so the library accepts them."""
    broken = repository(tmp_path, ROTARY.replace("self, q, k,", "self, k, q,"), "rotary")
    text = violations(check(layer("rotary_pos_emb", broken, "Rotary")))
    assert "'k' where callers pass 'q'" in text
    assert "exchanged" in text
    twin = repository(tmp_path / "twin", ROTARY, "rotary")
    assert check(layer("rotary_pos_emb", twin, "Rotary")).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("unsqueeze_dim=1", "unsqueeze_dim=2", "default 2, the layer's own 1"),
        ("unsqueeze_dim=1", "unsqueeze_dim", "default none"),
        ("unsqueeze_dim=1", "dim=1", "called 'dim'"),
    ],
)
def test_an_optional_parameter_must_keep_name_and_default(tmp_path: Path, old: str, new: str, words: str) -> None:
    """Another default is another result wherever a caller leaves the parameter out; another name is a TypeError."""
    root = repository(tmp_path, ROTARY.replace(old, new), "rotary")
    assert words in violations(check(layer("rotary_pos_emb", root, "Rotary")))


def test_another_name_for_what_is_passed_by_position_is_a_note(tmp_path: Path) -> None:
    """A check that is red for a kernel whose only parameter is called x, which serves every caller there is."""
    finding = check_norm(
        repository(
            tmp_path,
            NORM.replace("forward(self, hidden_states)", "forward(self, x)").replace(
                "normalise(hidden_states, self", "normalise(x, self"
            ),
        )
    )
    assert finding.outcome is Outcome.PASS, finding.message
    assert "callers pass it by position" in str(finding.measures["notes"])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("    has_backward = True\n", "    has_backward = True\n    calls = 0\n", "members beside its forward (calls)"),
        (
            "    def forward",
            "    def __init__(self):\n        super().__init__()\n\n    def forward",
            "constructor of its own",
        ),
        ("        return norm", "        self.seen = hidden_states\n        return norm", "writes to self.seen"),
        ("class Norm(nn.Module)", "class Norm", "no subclass of torch.nn.Module"),
        ("has_backward = True", "has_backward = 'yes'", "expected True or False"),
        ("class Norm(", "class Other(", "there are Other"),
        ("import torch\n", "import torch\nimport no_such_package\n", "ModuleNotFoundError"),
    ],
)
def test_an_impure_layer_fails(tmp_path: Path, old: str, new: str, words: str) -> None:
    """State in the layer is lost or, worse, kept in the user's module; a missing class or import fails at load only."""
    assert words in violations(check_norm(repository(tmp_path, NORM.replace(old, new, 1))))


def test_two_repositories_with_one_id_fail_both(tmp_path: Path) -> None:
    """V29: the second to be loaded gets the first one's layers, and every result is about the wrong kernel."""
    first, second = repository(tmp_path / "a"), repository(tmp_path / "b", NORM.replace("1e-6", "1e-5"))
    for root in (first, second):
        edit(root, id="_the_same")
    both = layer("RMSNorm", first, "Norm"), layer("SiLU", second, "Norm")
    for pair in (both, both[::-1]):
        assert "'_the_same' is also that of" in violations(check(*pair))
    alone = layer("RMSNorm", first, "Norm")
    assert check(alone, layer("SiLU", first, "Norm")).outcome is Outcome.PASS


def test_changed_files_fail_the_digest(tmp_path: Path) -> None:
    """A file edited after the build: the library never compares the digest when it loads."""
    root = repository(tmp_path)
    path = root / "build" / "torch-cpu" / "layers.py"
    path.write_text(path.read_text() + "# edited\n")
    assert "File hash mismatch for layers.py" in violations(check_norm(root))


def test_no_digest_is_recorded_and_no_failure(tmp_path: Path) -> None:
    """A kernel under development has none, and must be testable."""
    root = repository(tmp_path)
    edit(root, digest=None)
    finding = check_norm(root)
    assert finding.outcome is Outcome.PASS
    assert finding.measures["digest"] == "absent"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": None}, "missing field `id`"),
        ({"id": "json"}, "name of an installed module"),
        ({"id": "../x"}, "no Python name"),
        ({"version": "one"}, "invalid type"),
        ({"python_depends": {"os": 1}}, "invalid type"),
        ({"backend": {"type": "cuda"}}, "'cuda' in a variant for 'cpu'"),
        ({"name": "<script>" * 1000}, "Invalid kernel name"),
        ({"license": "x" * (2 << 20)}, "more than any needs"),
    ],
)
def test_hostile_or_broken_metadata_is_a_finding(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    """A traceback instead of a sentence; an id that replaces a module of the process; a file that fills the memory."""
    root = repository(tmp_path)
    edit(root, **changes)
    found = repository_files.look(root / "build" / "torch-cpu")
    assert words in " ".join(found.problems)
    assert all(len(problem) < 1000 for problem in found.problems)


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"id": "\\ud800"}', "\0"])
def test_what_is_no_metadata_at_all_is_a_finding(tmp_path: Path, text: str) -> None:
    """Nesting that overflows a stack, half a surrogate, an empty file."""
    root = repository(tmp_path)
    (root / "build" / "torch-cpu" / "metadata.json").write_text(text)
    assert repository_files.look(root / "build" / "torch-cpu").problems


def test_source_is_read_without_running_it(tmp_path: Path) -> None:
    """A repository that nobody asked to load runs code when it is only looked at."""
    root = repository(tmp_path, "raise SystemExit('ran')\n" + NORM)
    assert repository_files.look(root / "build" / "torch-cpu").problems == []
    assert repository_files.sources(root / "build" / "torch-cpu", "Norm").problems == []
    assert "SystemExit" in violations(check_norm(root))


@pytest.mark.parametrize(
    ("old", "new", "words", "missing"),
    [
        ("", "", "", "none"),
        ("s_aux=None", "sinks=None", "", "s_aux"),
        ("window_size=(-1, -1), ", "", "", "window_size"),
        ("causal=False, ", "", "takes no causal", ""),
        ("(q, k, v,", "(k, q, v,", "by position", ""),
        ("def flash_attn_func", "def other", "no function flash_attn_func", ""),
        ("cu_seqlens_k, ", "", "takes no cu_seqlens_k", ""),
    ],
)
def test_attention_functions_take_what_transformers_passes(old: str, new: str, words: str, missing: str) -> None:
    """V13, S18: what a signature does not take is dropped without a word, but for a soft-cap."""
    names: dict[str, object] = {}
    exec(ATTENTION.replace(old, new) if old else ATTENTION, names)
    found = attention_functions.check(SimpleNamespace(**names))
    assert bool(found.problems) == bool(words), found
    assert words in " ".join(found.problems)
    assert words or (", ".join(found.missing) or "none") == missing


def test_only_what_the_plan_uses_is_looked_at() -> None:
    """A repository that no case asks for is downloaded, or one that a case uses is not looked at."""
    kernel = KernelReference("/x", "Norm")
    cases = plan.build(plan.Selection(tier=Tier.SMOKE, kernels=(("RMSNorm", kernel),)))
    found = repositories.in_use(cases, {plan.USER: {"RMSNorm": kernel}})
    assert [each.name for each in found if each.kernel is not None] == ["RMSNorm"]
    assert repositories.in_use((), {}, ["repository/SiLU"])[0].kernel == BUNDLED["SiLU"]
    with pytest.raises(ValueError, match="no kernel for 'Nothing'"):
        repositories.in_use((), {}, ["repository/Nothing"])
