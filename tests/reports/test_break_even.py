"""Break-even maps: what follows from their cells, which records have one, and how the report shows them."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from cases.axes import Property
from reports.break_even import Cell, Payback, first_win, heat_map, maps, measures_of, payback
from reports.evidence import Ledger
from reports.html import render_html
from reports.ratio import Ratio
from reports.record import Engagement, Measure, Outcome, Record, Speed
from reports.store import read_run
from reports.summary import markdown_summary, text_summary
from tests.reports.conftest import Browse
from tests.reports.synthetic import write_run

CASE = "qwen3-0.6b-width/f32/inference/sdpa/only-RMSNorm"
UNMET = "after 8 pairs the interval does not decide"
NORM = Engagement(name="RMSNorm", promised="o/n@v1:N", resolved="o/n@c:N", modules=2, bound=2, calls=4)


def cell(rows: int, tokens: int, verdict: Speed, ratio: float = 1.0) -> Cell:
    unmet = UNMET if verdict is Speed.INCONCLUSIVE else ""
    return Cell(rows, tokens, Ratio(ratio, ratio * 0.99, ratio * 1.01), verdict, unmet, 0.010 * ratio, 0.010)


LOSES, UNCLEAR = cell(1, 1, Speed.SLOWER, 0.9), cell(1, 16, Speed.INCONCLUSIVE)
WINS, MORE = cell(4, 16, Speed.FASTER, 1.2), cell(4, 64, Speed.FASTER, 1.5)
CELLS = (LOSES, UNCLEAR, WINS, MORE)


def record(case: str = CASE, measures: dict[str, Measure] | None = None) -> Record:
    return Record(
        case=case,
        property=Property.BREAK_EVEN,
        outcome=Outcome.PASS,
        evidence=(NORM,),
        measures={**measures_of(1024, CELLS, 3.0, "16 × 256: no time"), **(measures or {})},
    )


def test_a_kernel_wins_from_the_shape_on_after_which_it_never_loses() -> None:
    """Fault: one lucky small shape taken for the break-even."""
    lucky, loses = cell(1, 1, Speed.FASTER, 1.1), cell(1, 16, Speed.SLOWER, 0.9)
    wins, same = cell(4, 16, Speed.FASTER, 1.2), cell(4, 64, Speed.SAME)
    assert first_win([same, wins, loses, lucky]) == wins
    assert first_win([lucky, loses]) is None
    assert first_win([same]) is None


def test_what_was_paid_comes_back_call_by_call() -> None:
    """Fault: a payback by the ratio instead of by the time saved, or without what the interval leaves open."""
    assert payback(cell(1, 64, Speed.FASTER, 2.0), 1.0) == Payback(100, 100, 102)
    assert payback(cell(1, 64, Speed.SAME, 1.01), 1.0) is None


def test_the_map_for_a_terminal_shows_each_shape_with_interval_and_verdict() -> None:
    """Fault: rows and columns exchanged."""
    lines = heat_map(CELLS).splitlines()
    assert re.split("  +", lines[0].strip()) == ["rows", "1 tokens", "16 tokens", "64 tokens"]
    assert "0.900× (0.891 to 0.909) -" in lines[2]
    assert lines[3].index("1.200× (1.188 to 1.212) +") < lines[3].index("1.500× (1.485 to 1.515) +")
    assert f"1 × 16 is INCONCLUSIVE: {UNMET}" in lines


def test_a_map_comes_back_from_its_record() -> None:
    """Fault: figures that change places on their way through the results file."""
    (found,) = maps([record()], Ledger([record()]))
    assert found.cells == CELLS
    assert (found.kernel, found.width, found.cost) == ("only-RMSNorm", 1024, 3.0)
    assert record().measures["first_win"] == "4x16"
    assert record().measures["payback_calls"] == pytest.approx(1500, abs=1)
    assert found.sentence.startswith("starts to win at 4 × 16 tokens, with 1.200× (1.188 to 1.212); 1,50")


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": Outcome.FALLBACK},
        {"outcome": Outcome.FAIL},
        {"outcome": Outcome.NOT_RUN},
        {"evidence": ()},
        {"evidence": (replace(NORM, calls=0),)},
    ],
)
def test_a_kernel_that_fell_back_is_wrong_or_was_not_called_has_no_cell(changes: dict[str, object]) -> None:
    """Fault: a map of PyTorch against itself under the name of a kernel."""
    changed = replace(record(), **changes)
    assert maps([changed], Ledger([changed])) == []


@pytest.mark.parametrize(
    "measures",
    [
        {"rows": "many"},
        {"rows": [1.0]},
        {"ratios": [-1.0, float(10**12), 0.0, 1e300]},
        {"verdicts": "BRILLIANT"},
        {"kernel_seconds": [0.0] * 4},
        {"cost_seconds": "<b>", "width": 1e300, "left_out": [1.0]},
    ],
)
def test_figures_that_cannot_be_make_no_cell_and_no_error(measures: dict[str, Measure], tmp_path: Path) -> None:
    """Fault: a results file from elsewhere that ends the report."""
    found = record(measures=measures)
    drawn = maps([found], Ledger([found]))
    assert len(drawn[0].cells if drawn else ()) in (0, 1, 4)
    run = read_run(write_run(tmp_path, [found]))
    assert render_html(run)
    assert text_summary(run)


def test_the_download_of_the_kernels_is_a_part_of_what_has_to_come_back() -> None:
    """Fault: a kernel that is paid for by its load alone, since the check of its repository has fetched it."""
    fetched = Record(
        case="repository/RMSNorm",
        property=Property.REPOSITORY,
        outcome=Outcome.PASS,
        measures={"promised": "o/n@v1:Other", "download_seconds": 5.0},
    )
    other = replace(fetched, measures={"promised": "o/other@v1:N", "download_seconds": 50.0})
    (found,) = maps([fetched, other, record()], Ledger([record()]))
    assert found.cost == pytest.approx(8.0)
    assert "pay back the 8 s of download, load and first pass" in found.sentence


def test_the_report_draws_the_maps_and_says_the_same_in_words(tmp_path: Path, browse: Browse) -> None:
    """Fault: a break-even that only a reader with scripts, or with eyes for colours, can see."""
    wider = record("llama-3.2-1b-width/f32/inference/sdpa/only-RMSNorm", {"width": 2048})
    run = read_run(write_run(tmp_path, [record(), wider]))
    page = tmp_path / "report.html"
    document = render_html(run)
    page.write_text(document, encoding="utf-8")
    words = re.sub(r"<[^>]+>", "", re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL))
    for piece in ("starts to win at 4 × 16 tokens", "width 2,048", UNMET, "SLOWER", "0.891 to 0.909", "no time"):
        assert piece in words
    for text in (text_summary(run), markdown_summary(run)):
        assert "starts to win at 4 × 16 tokens" in text
    dom, log = browse(page)
    assert "CONSOLE" not in log
    drawn = dom.split('id="heat-1"')[1].split("<details")[0]
    assert "<svg" in drawn
    for word in ("FASTER", "SLOWER", "INCONCLUSIVE"):
        assert word in drawn
