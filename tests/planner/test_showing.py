"""The report on a terminal, as JSON, and as a picture."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from rich.console import Console

from controlplane.model import FormatTier
from planner.quality import plot, terminal
from planner.quality.advice import advise
from planner.quality.asking import Mode
from planner.quality.judging import Judged, SetAside
from planner.quality.measured import Failure, FailureKind, Measured, Text
from planner.quality.report import Evaluation, document
from planner.quality.summary import summarise
from support.evaluation import POLICY, measured


def evaluation(every: list[Measured], aside: tuple[SetAside, ...] = (), *, complete: bool = True) -> Evaluation:
    summary = summarise(every, Random(1))
    advice = advise(summary, [each.judged for each in every], POLICY)
    return Evaluation({"seed": 1}, len(every) + len(aside), complete, tuple(every), aside, summary, advice)


@pytest.fixture
def whole(programs: list[Judged], stories: list[Judged]) -> Evaluation:
    every = [measured(each, 40, diverged=True, prefix_shift=0.01, speed_ratio=1.5) for each in programs]
    every += [measured(each, 1, diverged=True, prefix_shift=0.2, speed_ratio=1.6) for each in stories]
    return evaluation(every)


def shown(found: Evaluation) -> str:
    console = Console(file=io.StringIO(), width=400)
    terminal.show(console, found)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_tables_tell_each_group_and_the_advice_with_its_numbers(whole: Evaluation) -> None:
    text = shown(whole)
    assert "20 of 20 requests compared" in text
    for row in ("all ", "sensitive ", "tolerant ", "  code ", "  writing "):
        assert any(line.startswith(row) for line in text.splitlines()), row
    assert "1.50x (1.50 to 1.50)" in text
    assert "too lax: writing, judged tolerant (10 requests): 50.0 (" in text
    assert "borne out: code, judged sensitive" in text
    assert "would give 10 of these 10 another verdict; of the other requests measured: none" in text


def test_what_was_not_sent_or_not_answered_is_told_with_the_reason(stories: list[Judged]) -> None:
    failed = Measured(stories[0], (), (Failure(FailureKind.REFUSED, FormatTier.FULL, "status 503"),) * 2)
    aside = (SetAside(3, "no [full] node"), SetAside(4, "no [full] node"), SetAside(5, "too long"))
    text = shown(evaluation([failed], aside, complete=False))
    assert "0 of 4 requests compared, ended early" in text
    assert "2 not sent (3, 4): no [full] node" in text
    assert "1 not sent (5): too long" in text
    assert "2 without an answer: full: refused (status 503)" in text
    assert "greedy" not in text


def test_the_document_is_json_without_a_text_unless_kept(whole: Evaluation, stories: list[Judged]) -> None:
    text = json.dumps(document(whole), allow_nan=False)
    assert "story" not in json.dumps(json.loads(text)["measured"])
    found = json.loads(text)
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


def test_a_missing_matplotlib_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    plot.check_plots()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(plot.PlotsMissingError, match=r"pip install 'headrace\[plots\]'"):
        plot.check_plots()
