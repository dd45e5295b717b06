"""The report as a JSON document. Prompts and answers are in it only where they were kept."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from enum import StrEnum
from typing import Any

from controlplane.model import FormatTier
from planner.quality.advice import Advice
from planner.quality.comparing import Separation
from planner.quality.conclusion import conclude
from planner.quality.judging import Judged, SetAside
from planner.quality.measured import Measured
from planner.quality.summary import Group, Summary

VERSION = 2


class Ending(StrEnum):
    WHOLE = "whole"
    EARLY = "ended early"
    GIVEN_UP = "given up, since too many in a row were not answered"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All that is known at the end. `settings` are those it ran with; `formats` those loaded in each tier, as nodes
    name them."""

    settings: Mapping[str, Any]
    date: date
    formats: Mapping[FormatTier, tuple[str, ...]]
    asked: int
    ending: Ending
    measured: tuple[Measured, ...]
    aside: tuple[SetAside, ...]
    summary: Summary
    separations: tuple[Separation, ...]
    advice: tuple[Advice, ...]

    @property
    def compared(self) -> int:
        """Requests."""
        return sum(each.compared for each in self.measured)

    @property
    def models(self) -> str:
        return " and ".join(sorted({each.judged.model for each in self.measured}))

    @property
    def formats_told(self) -> str:
        """As `int4-awq against fp16`; empty where a tier's are not known."""
        quantized, full = (" and ".join(self.formats.get(tier, ())) for tier in (FormatTier.QUANTIZED, FormatTier.FULL))
        return f"{quantized} against {full}" if quantized and full else ""

    @property
    def failures(self) -> Counter[str]:
        return Counter(str(failure) for each in self.measured for failure in each.failures)


def document(evaluation: Evaluation) -> dict[str, Any]:
    """Intervals are of 95%. Shares and rates are 0 to 1, times seconds, log-probabilities natural and per token."""
    summary = evaluation.summary
    found: dict[str, Any] = {
        "version": VERSION,
        "date": evaluation.date.isoformat(),
        "settings": dict(evaluation.settings),
        "formats": {tier.value: list(names) for tier, names in evaluation.formats.items()},
        "requests": {
            "asked": evaluation.asked,
            "compared": evaluation.compared,
            "complete": evaluation.ending is Ending.WHOLE,
            "set_aside": [asdict(each) for each in evaluation.aside],
            "failures": dict(evaluation.failures),
        },
        "overall": _group(summary.overall),
        "verdicts": [_group(group) for group in summary.verdicts],
        "categories": [_group(group) for group in summary.categories],
        "cells": [_group(group) for group in summary.cells],
        "conclusion": conclude(summary, evaluation.separations),
        "separations": [asdict(each) for each in evaluation.separations],
        "advice": [asdict(each) | {"finding": each.finding} for each in evaluation.advice],
        "measured": [_measured(each) for each in evaluation.measured],
    }
    plain: dict[str, Any] = _finite(found)
    return plain


def _group(group: Group) -> dict[str, Any]:
    return {
        "category": group.category,
        "verdict": group.verdict,
        "requests": group.requests,
        **{mode.value: asdict(gap) for mode, gap in group.gaps.items()},
    }


def _measured(each: Measured) -> dict[str, Any]:
    shown: dict[str, Any] = {
        **_judged(each.judged),
        "comparisons": [asdict(comparison) for comparison in each.comparisons],
        "failures": [str(failure) for failure in each.failures],
    }
    if each.texts:
        shown["request"] = dict(each.judged.sample.body)
        shown["answers"] = [asdict(text) for text in each.texts]
    return shown


def _judged(judged: Judged) -> dict[str, Any]:
    return {
        "number": judged.sample.number,
        "model": judged.model,
        "category": judged.category,
        "verdict": judged.verdict,
        "score": judged.score,
        "contributions": {part.name: part.points for part in judged.contributions},
    }


def _finite(value: Any) -> Any:
    """JSON has no infinity: what is never reached is null."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {key: _finite(each) for key, each in value.items()}
        case Sequence() if not isinstance(value, str):
            return [_finite(each) for each in value]
        case _:
            return value
