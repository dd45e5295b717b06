"""The report on a terminal, as JSON, and as a picture."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from random import Random

import pytest
from rich.console import Console

from controlplane.model import FormatTier
from planner.plots import PlotsMissingError, check_plots
from planner.quality import plot, terminal
from planner.quality.advice import advise
from planner.quality.asking import Mode
from planner.quality.comparing import separate
from planner.quality.judging import Judged, SetAside
from planner.quality.measured import Failure, FailureKind, Measured, Text
from planner.quality.report import Ending, Evaluation, document
from planner.quality.summary import summarise
from support.evaluation import POLICY, measured


def evaluation(every: list[Measured], aside: tuple[SetAside, ...] = (), ending: Ending = Ending.WHOLE) -> Evaluation:
    summary = summarise(every, Random(1))
    advice = advise(summary, [each.judged for each in every], POLICY)
    return Evaluation(
        settings={"max_tokens": 48},
        date=date(2026, 11, 30),
        formats={FormatTier.FULL: ("fp16",), FormatTier.QUANTIZED: ("int4-awq",)},
        asked=len(every) + len(aside),
        ending=ending,
        measured=tuple(every),
        aside=aside,
        summary=summary,
        separations=separate(summary),
        advice=advice,
    )


@pytest.fixture
def whole(programs: list[Judged], stories: list[Judged]) -> Evaluation:
    every = [measured(each, 40, diverged=True, prefix_shift=0.01, speed_ratio=1.5) for each in programs]
    every += [measured(each, 1, diverged=True, prefix_shift=0.2, speed_ratio=1.6) for each in stories]
    return evaluation(every)


def shown(found: Evaluation, width: int = 400) -> str:
    console = Console(file=io.StringIO(), width=width)
    terminal.show(console, found)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_tables_tell_each_group_and_the_advice_with_its_numbers(whole: Evaluation) -> None:
    text = shown(whole)
    assert "20 of 20 requests compared: int4-awq against fp16 on m" in text
    for row in ("all ", "sensitive ", "tolerant ", "  code ", "  writing "):
        assert any(line.startswith(row) for line in text.splitlines()), row
    assert "1.50x (1.50 to 1.50)" in text
    assert "On this model the verdicts do not hold: sensitive requests change less than tolerant ones." in text
    assert "contradicted: requests judged sensitive (10) change more than those judged tolerant (10)" in text
    assert "contradicted: writing, judged tolerant (10 requests), change less than sensitive ones" in text
    assert "divergences per 100 tokens: sensitive 2.4, writing 50.0, difference -47.6 (" in text
    assert "contradicted: code, judged sensitive" in text
    assert "would give 10 of these 10 another verdict; of the other requests measured: none" in text


def test_the_report_reads_without_colour_in_100_columns(whole: Evaluation) -> None:
    lines = shown(whole, 100).splitlines()
    assert max(map(len, lines)) <= 100
    for place, line in enumerate(lines):
        if line.startswith(("all ", "sensitive ", "tolerant ", "  code ", "  writing ")) and "x (" not in line:
            # Of each group the noise has a line of its own, and no cell of either goes on in the next one.
            assert lines[place + 1].startswith("    noise "), line
            assert lines[place + 2][:1] != " " or lines[place + 2].startswith("  "), line
    greedy = next(line for line in lines if line.startswith("all "))
    assert " ".join(greedy.split()) == "all 20 100% (84 to 100) 4.7 (3.0 to 7.1) 0.105 (0.059 to 0.151)"
    noise = lines[lines.index(greedy) + 1]
    assert " ".join(noise.split()) == "noise 0% (0 to 16) 0.0 (0.0 to 0.4) 0.000 (0.000 to 0.000)"


def test_long_names_of_categories_break_no_table(programs: list[Judged]) -> None:
    every = [measured(replace(each, category="requests of the support desk"), 9, diverged=True) for each in programs]
    text = shown(evaluation(every), 100)
    assert "  requests of t… " in text
    assert max(map(len, text.splitlines())) <= 100


def test_what_was_not_sent_or_not_answered_is_told_with_the_reason(stories: list[Judged]) -> None:
    failed = Measured(stories[0], (), (Failure(FailureKind.REFUSED, FormatTier.FULL, "status 503"),) * 2)
    aside = (SetAside(3, "no [full] node"), SetAside(4, "no [full] node"), SetAside(5, "too long"))
    text = shown(evaluation([failed], aside, Ending.EARLY))
    assert "0 of 4 requests compared, ended early" in text
    assert "2 not sent (3, 4): no [full] node" in text
    assert "1 not sent (5): too long" in text
    assert "2 without an answer: full: refused (status 503)" in text
    assert "greedy" not in text
    assert "0 of 1 requests compared, given up, since" in shown(evaluation([failed], ending=Ending.GIVEN_UP))


def test_the_document_is_json_without_a_text_unless_kept(whole: Evaluation, stories: list[Judged]) -> None:
    text = json.dumps(document(whole), allow_nan=False)
    assert "story" not in json.dumps(json.loads(text)["measured"])
    found = json.loads(text)
    assert (found["date"], found["formats"]) == ("2026-11-30", {"full": ["fp16"], "quantized": ["int4-awq"]})
    assert found["conclusion"].startswith("On this model the verdicts do not hold")
    assert found["separations"][0]["comparison"]["contrasts"][0]["difference"]["high"] < 0
    assert {each["category"]: each["finding"] for each in found["advice"]} == {
        "code": "contradicted",
        "writing": "contradicted",
    }
    assert found["overall"]["greedy"]["quantized"]["changed"]["value"] == 1.0
    assert found["categories"][1]["category"] == "writing"
    # Half of the full tier's own answers never diverge: that is no number.
    assert found["overall"]["greedy"]["noise"]["median_divergence"]["value"] is None
    kept = replace(measured(stories[0], 1, diverged=True), texts=(Text(Mode.GREEDY, 0, "full", "Once"),))
    (shown_one,) = json.loads(json.dumps(document(evaluation([kept]))))["measured"]
    assert shown_one["answers"] == [{"mode": "greedy", "repetition": 0, "source": "full", "text": "Once"}]
    assert "story" in shown_one["request"]["messages"][0]["content"]


def test_the_picture_is_a_png_whatever_categories_are_called(
    programs: list[Judged], stories: list[Judged], tmp_path: Path
) -> None:
    every = [measured(replace(each, category="$x^"), 4, diverged=True, prefix_shift=0.1) for each in programs[:3]]
    every.append(measured(stories[0], 4, diverged=False))
    plot.draw(evaluation(every), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_the_pictures_title_is_the_conclusion_with_what_when_and_how_much(whole: Evaluation) -> None:
    figure = plot.picture(whole)
    title, facts = (text.get_text() for text in figure.texts)
    assert title.startswith("On this model the verdicts do not hold")
    assert facts == (
        "m  ·  int4-awq against fp16  ·  20 requests  ·  greedy answers of at most 48 tokens  ·  30 November 2026"
    )
    assert [axes.get_xlabel() for axes in figure.axes] == [
        "further right is worse  →",
        "further right is worse  →",
        "←  slower      faster  →",
    ]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == [
        "all (20)",
        "judged sensitive (10)",
        "judged tolerant (10)",
        "writing (10, tolerant)",
        "code (10, sensitive)",
    ]


def test_single_requests_are_not_drawn_and_panels_without_a_mark_are_left_out(
    programs: list[Judged], stories: list[Judged]
) -> None:
    every = [measured(each, 4, diverged=True, prefix_shift=0.1) for each in programs[:2]]
    every.append(measured(stories[0], 0, diverged=True))
    divergences, shift = plot.picture(evaluation(every)).axes
    for axes in (divergences, shift):
        assert len([text for text in axes.texts if "too few to tell" in text.get_text()]) == 2
        assert axes.get_xlim()[0] == 0
    # The single request's 100 does not stretch the axis, on which the others are 27 and 20.
    assert 27 < divergences.get_xlim()[1] < 50
    assert plot.picture(evaluation(every[:1])).axes == []


def test_few_requests_do_not_stretch_the_axes_of_many(programs: list[Judged], stories: list[Judged]) -> None:
    every = [measured(each, 20 + n, diverged=True) for n, each in enumerate(programs)]
    every += [measured(each, 9, diverged=n == 0) for n, each in enumerate(stories[:2])]
    (axes,) = plot.picture(evaluation(every)).axes
    highest = evaluation(every).summary.verdicts[1].gaps[Mode.GREEDY].quantized.divergence
    assert highest is not None
    assert axes.get_xlim()[1] < 100 * highest.high
    assert any(line.get_marker() == ">" for line in axes.lines)


def test_a_missing_matplotlib_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    check_plots()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlotsMissingError, match=r"pip install 'headrace\[plots\]'"):
        check_plots()
