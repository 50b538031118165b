"""The HTML report is complete, harmless and loads nothing."""

import base64
import gzip
import html
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cases.axes import Property
from reports.html import render_html
from reports.kernel_config import configuration
from reports.record import Engagement, Outcome, Reason, Record, Speed
from reports.store import read_run
from reports.summary import markdown_summary, text_summary
from tests.reports.conftest import Browse
from tests.reports.synthetic import COMMIT, environment, records, write_run

ATTACKS = (
    "<script>window.owned=1</script>",
    "</script><img src=x onerror=window.owned=1>",
    "\"'><svg/onload=window.owned=1>",
    "</title></style><!--",
    "{{ 7 * 7 }}{% raw %}",
    "\x1b[2J\x1b]0;owned\x07\x1b[31mred",
    "left\u202egpj.exe\u2066\u200b",
    "line\u2028separator\u2029",
    "| a | b |\n# head [link](javascript:alert(1)) `tick`",
    "x" * 500,
)
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]")


def hostile_records() -> list[Record]:
    found = []
    for number, attack in enumerate(ATTACKS):
        part = attack.replace("/", "~")[:100]
        entry = Engagement(
            name=attack,
            promised=attack,
            resolved=attack,
            digest=attack,
            modules=1,
            reason=Reason.REJECTED,
            detail=attack * 20,
        )
        for outcome, kind in (
            (Outcome.FALLBACK, Property.ENGAGE),
            (Outcome.PASS, Property.FORWARD),
            (Outcome.FAIL, Property.LOAD),
        ):
            found.append(
                Record(
                    case=f"{number}{part}/f32/inference/{part}/{part}",
                    property=kind,
                    outcome=outcome,
                    message=attack * 30,
                    evidence=(entry,),
                    reason=Reason.HUB_AWAY if outcome is Outcome.HARNESS_ERROR else None,
                    measures={attack: attack, "error_ratio": 1.0, "limit": 2.0, "hub": attack, "hub_away_at": attack},
                    requirements=(attack,),
                    shims=(attack,),
                    repro=f"pytest {attack}",
                )
            )
    return found


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    found = [*hostile_records(), *records(80)]
    write_run(tmp_path, found)
    attack = "".join(ATTACKS[:8])
    machine = replace(
        environment(len(found)),
        device_name=attack,
        driver=attack,
        hub=attack,
        command=attack,
        packages={attack: attack},
        shims=(attack,),
        platform=attack,
    )
    (tmp_path / "environment.json").write_bytes(msgspec.json.encode(machine))
    (tmp_path / "kernels.lock.json").write_text(json.dumps({attack: attack}))
    with (tmp_path / "results.jsonl").open("ab") as file:
        file.write(b'{"case": "<script>alert(1)</script>", "outcome": "<b>"}\n')
    return tmp_path


def data_of(document: str) -> dict[str, Any]:
    block = re.search(r'<script type="text/plain" id="data"[^>]*>([A-Za-z0-9+/=]*)</script>', document)
    assert block
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(block[1])))
    return found


def test_no_string_of_a_record_becomes_markup(hostile: Path) -> None:
    """Catches a message that ends a script, opens a tag or leaves its attribute."""
    document = render_html(read_run(hostile))
    for piece in ("<script>window", "onerror=window.owned=1>", "<svg/onload", "<!--", "<b>"):
        assert piece not in document
    assert html.escape(ATTACKS[0]) in document
    # Ours, and no other: data, licences, the chart library and the script of the page.
    assert document.count("<script") == document.count("</script>") == 6


def test_no_invisible_character_reaches_a_reader(hostile: Path) -> None:
    """Catches terminal escapes and bidirectional overrides that change what is read."""
    run = read_run(hostile)
    document = render_html(run)
    licences_and_scripts = re.compile(r"<script.*?</script>", re.DOTALL)
    assert not INVISIBLE.search(licences_and_scripts.sub("", document))
    assert not any(INVISIBLE.search(text) for text in data_of(document)["strings"])
    assert not INVISIBLE.search(text_summary(run))
    assert not INVISIBLE.search(markdown_summary(run))


def test_a_hostile_report_is_harmless_in_a_browser(hostile: Path, browse: Browse) -> None:
    """Catches an injection that only the script of the page commits."""
    page = hostile / "report.html"
    page.write_text(render_html(read_run(hostile)), encoding="utf-8")
    dom, log = browse(page)
    assert 'data-ready="true"' in dom
    assert "CONSOLE" not in log
    assert not re.search(r"<(img|svg/|b>)", re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL))


def requests_of_page(log: Path) -> list[str]:
    """Addresses that the page asked for. The browser itself has no origin; a page from disk has ``null``."""
    events = json.loads(log.read_text(encoding="utf-8"))["events"]
    started = (event["params"] for event in events if "initiator" in event.get("params", {}))
    return sorted({params["url"] for params in started if params["initiator"] == "null"})


@pytest.fixture
def ordinary(tmp_path: Path) -> Path:
    write_run(tmp_path, list(records(600)))
    (tmp_path / "report.html").write_text(render_html(read_run(tmp_path)), encoding="utf-8")
    return tmp_path / "report.html"


def test_the_report_opens_from_disk_without_errors_or_requests(ordinary: Path, browse: Browse, tmp_path: Path) -> None:
    """Catches a script error, a chart that does not draw, and anything that is fetched."""
    net = tmp_path / "net.json"
    dom, log = browse(ordinary, f"--log-net-log={net}")
    assert 'data-ready="true"' in dom, "the script of the page did not reach its end"
    assert "CONSOLE" not in log
    assert "<svg" in dom.split('id="chart"')[1], "the chart was not drawn"
    assert "page 1 of 12" in dom
    assert requests_of_page(net) == []


def test_a_request_of_a_page_would_be_noticed(browse: Browse, tmp_path: Path) -> None:
    """Catches a change of the browser's log that would make the test above pass for any page."""
    page, net = tmp_path / "page.html", tmp_path / "net.json"
    page.write_text('<img src="http://example.invalid/x.png">')
    browse(page, f"--log-net-log={net}")
    assert requests_of_page(net) == ["http://example.invalid/x.png"]


def test_a_link_can_point_at_one_cell(ordinary: Path, browse: Browse) -> None:
    """Catches a filter in the address that is ignored."""
    dom, _ = browse(ordinary, fragment="#cases?outcome=PASS&property=speed&model=llama")
    rows = dom.split('id="rows"')[1].split("</tbody>")[0]
    assert "llama/" in rows
    assert "gemma2/" not in rows


def test_the_policy_admits_the_scripts_of_the_page_and_no_network(ordinary: Path) -> None:
    """Catches a policy that was loosened, and an address that something could load."""
    document = ordinary.read_text(encoding="utf-8")
    policy = html.unescape(re.findall(r'Content-Security-Policy" content="([^"]*)"', document)[0])
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]
    without_scripts = re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL)
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", without_scripts)
    assert "@import" not in without_scripts
    assert "url(" not in without_scripts


def test_the_chart_library_is_left_out_where_nothing_was_timed(tmp_path: Path) -> None:
    """Catches a megabyte of script in a report that has no chart."""
    write_run(tmp_path, [found for found in records(200) if found.property is not Property.SPEED])
    document = render_html(read_run(tmp_path))
    assert len(document) < 200_000
    assert "No speedup" in document


def test_the_report_reads_without_scripts(ordinary: Path) -> None:
    """Catches content that exists only once a script has run."""
    document = re.sub(r"<script.*?</script>", "", ordinary.read_text(encoding="utf-8"), flags=re.DOTALL)
    for piece in (
        "Example Accelerator 1100",
        "geometric mean",
        "CANNOT_LOAD",
        "error ratio",
        "BITWISE",
        "95 % interval",
        "pytest suite --device xpu --case",
    ):
        assert piece in document


def test_a_ratio_of_times_has_its_interval_and_an_inconclusive_one_its_condition(tmp_path: Path) -> None:
    """Catches a speedup, or a mean of speedups, without the interval that says what it is worth."""
    unmet = "after 8 pairs, within the budget of 0.1 s, the interval does not decide"
    speeds = [record for record in records(400) if record.speed in (Speed.FASTER, Speed.INCONCLUSIVE)]
    faster = [record for record in speeds if record.speed is Speed.FASTER][:2]
    unclear = [record for record in speeds if record.speed is Speed.INCONCLUSIVE][:2]
    found = faster + [replace(record, measures={**record.measures, "unmet": unmet}) for record in unclear]
    run = read_run(write_run(tmp_path, found))
    page = re.sub(r"<(script|style).*?</\1>", "", render_html(run), flags=re.DOTALL)
    page = re.sub(r"<[^>]*>|\s+", " ", page.replace("</tr>", "\n")).replace("  ", " ")
    for text in (page, text_summary(run), markdown_summary(run)):
        ratios = re.findall(r"\d\.\d+\N{MULTIPLICATION SIGN}(.{0,40})", text)
        assert len(ratios) > 3
        for after in ratios:
            assert re.match(r"[ |(*]*(\d+\.\d{3} to \d+\.\d{3}|no interval)", after), after
        assert unmet in text
        assert "0.000 to" not in text


def test_a_commit_is_shown_short_and_kept_whole(ordinary: Path) -> None:
    """Catches lines of forty digits that nobody reads, and a commit that cannot be looked up."""
    section = ordinary.read_text(encoding="utf-8").partition('<section id="engagement"')[2].partition("</section>")[0]
    name = f"bundled/rmsnorm@{COMMIT}:RMSNorm"
    assert f'title="{name}">bundled/rmsnorm@{COMMIT[:12]}:RMSNorm<' in section


def test_the_best_configuration_can_be_copied_and_downloaded(ordinary: Path) -> None:
    """Catches a recommendation that nobody can take with them."""
    document = ordinary.read_text(encoding="utf-8")
    expected = configuration(read_run(ordinary.parent))
    (address,) = re.findall(r'download="kernel_config.py" href="data:text/x-python;base64,([^"]+)"', document)
    assert base64.b64decode(address).decode() == expected
    (copied,) = re.findall(r'data-copy="([^"]*KERNEL_CONFIG[^"]*)"', document)
    assert html.unescape(copied) == expected


def test_every_record_is_in_the_data_of_the_page(ordinary: Path) -> None:
    """Catches a record that is dropped or shifted against its columns on the way into the page."""
    run = read_run(ordinary.parent)
    data = data_of(ordinary.read_text(encoding="utf-8"))
    columns, strings = data["columns"], data["strings"]
    assert {len(column) for column in columns.values()} == {len(run.records)}
    shown = {
        (strings[case], strings[kind], strings[out])
        for case, kind, out in zip(columns["case"], columns["property"], columns["outcome"], strict=True)
    }
    assert shown == {(found.case, found.property.value, found.outcome.value) for found in run.records}


def test_the_same_run_gives_the_same_report(ordinary: Path) -> None:
    """Catches a time stamp or an unordered set in the page, which would make reports differ for no reason."""
    assert render_html(read_run(ordinary.parent)) == ordinary.read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [0, 1])
def test_a_run_of_almost_nothing_still_has_a_report(tmp_path: Path, number: int) -> None:
    """Catches a mean, a maximum or a first row of nothing."""
    write_run(tmp_path, list(records(number)))
    (tmp_path / "environment.json").unlink()
    run = read_run(tmp_path)
    document = render_html(run)
    assert "environment unknown" in document
    assert text_summary(run)
    assert markdown_summary(run)


def test_figures_beyond_all_bounds_are_shown_and_do_not_end_the_report(tmp_path: Path) -> None:
    """Catches an overflow or a division by zero over a figure that no clock gave."""
    lines = []
    for number, text in enumerate(
        ["1e308", "-1e308", "0", "5e-324", "true", '"x"', "null", "[]", "[1e308,1]", str(2**63)]
    ):
        for kind in ("forward", "speed", "memory"):
            speed = '"FASTER"' if kind == "speed" else "null"
            lines.append(
                f'{{"case":"m{number}/f32/inference/sdpa/pytorch","property":"{kind}","outcome":"PASS","speed":{speed},"seconds":1e300,'
                f'"evidence":[{{"name":"n","promised":"p","calls":{2**62},"modules":-5}}],'
                f'"measures":{{"ratio":{text},"low":{text},"high":{text},"error_ratio":{text},"limit":{text},"pytorch_ms":{text}}}}}'
            )
    (tmp_path / "results.jsonl").write_text("\n".join(lines))
    run = read_run(tmp_path)
    assert run.records
    assert render_html(run)
    assert text_summary(run)
