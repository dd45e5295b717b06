"""What comparisons say, in words."""

from __future__ import annotations

from collections.abc import Sequence

from planner.quality.comparing import LEAST_REQUESTS, Comparison, Contrast, Finding, Measure, Separation, any_gap
from planner.quality.summary import Summary


def conclude(summary: Summary, separations: Sequence[Separation]) -> str:
    """In one sentence without a full stop, whether the verdicts tell what suffers on this model."""
    if not separations:
        only = next((group.verdict for group in summary.verdicts), None)
        return f"All requests are judged {only}: there are none to compare them with"
    first = separations[0]
    found = first.comparison
    if not found.contrasts:
        counts = f"{found.requests[0]} {first.more}, {found.requests[1]} {first.less}"
        few = min(found.requests) < LEAST_REQUESTS
        why = f"too few requests ({counts})" if few else found.why_open
        return f"Whether the verdicts hold on this model is open: {why}"
    match found.finding:
        case Finding.BORNE_OUT:
            told = f"hold: {first.more} requests change more than {first.less} ones{_by(found)}"
        case Finding.CONTRADICTED:
            told = f"do not hold: {first.more} requests change less than {first.less} ones{_by(found)}"
        case _ if found.by(Finding.BORNE_OUT):
            told = "do not separate: the two measures contradict each other"
        case _ if not any_gap(summary.overall):
            return "Quantization changes nothing here that could be told from noise"
        case _:
            told = f"do not separate: {first.more} and {first.less} requests cannot be told apart"
    return f"On this model the verdicts {told}"


def _by(found: Comparison) -> str:
    """Which measure tells them apart, where not all do."""
    told = found.by(found.finding)
    return "" if len(told) == len(found.contrasts) else f", by their {' and '.join(each.measure for each in told)}"


def say(contrast: Contrast, requests: int, more: str, less: str) -> str:
    """A contrast of so many requests of groups with these names, with its numbers."""
    scale, digits = _shown_as(contrast.measure)
    per = f" per 100 {contrast.unit}" if contrast.measure is Measure.DIVERGENCES else ""
    groups = f"{more} {scale * contrast.more.value:.{digits}f}, {less} {scale * contrast.less.value:.{digits}f}"
    found = contrast.difference
    value, low, high = (f"{scale * each:+.{digits}f}" for each in (found.value, found.low, found.high))
    told = _outcome(contrast, requests)
    return f"{contrast.measure}{per}: {groups}, difference {value} ({low} to {high}): {told}"


def _outcome(contrast: Contrast, requests: int) -> str:
    scale, digits = _shown_as(contrast.measure)
    needed, wanted = contrast.requests_needed, contrast.worth_knowing
    match contrast.finding:
        case Finding.BORNE_OUT:
            return "as the rules say"
        case Finding.CONTRADICTED:
            return "the other way round"
        case _ if needed is None or wanted is None:
            return "cannot be told apart"
        case _ if needed <= requests:
            return f"cannot be told apart, though known to within ±{scale * wanted:.{digits}f}"
        case _:
            return (
                f"cannot be told apart; about {needed} requests instead of {requests} would tell it to within "
                f"±{scale * wanted:.{digits}f}"
            )


def _shown_as(measure: Measure) -> tuple[float, int]:
    """Scale and decimal places."""
    return (100.0, 1) if measure is Measure.DIVERGENCES else (1.0, 3)
