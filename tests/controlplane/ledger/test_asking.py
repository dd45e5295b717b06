"""The words by which decisions are asked for: a slip is an error, since it would find nothing for ever."""

from __future__ import annotations

import pytest

from controlplane.ledger.asking import UnreadableError, decisions_asked


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"verdict": "sensitve"}, "'sensitve' is none of sensitive, neutral, tolerant; did you mean sensitive?"),
        ({"tier": "int4"}, "'int4' is none of full, quantized"),
        ({"reason": "session_pined"}, "'session_pined' is none; did you mean session_pinned?"),
        ({"reason": "xyzzy"}, "'xyzzy' is none; docs/reasons.md lists them all"),
        ({"mistake": "too_smal"}, "'too_smal' is none of none, too_small, too_large, unknown; did you mean too_small?"),
        ({"since": "5m", "until": "10m"}, "'10m' is no later than since, so that nothing is in between"),
        ({"since": "5m", "until": "5m"}, "'5m' is no later than since, so that nothing is in between"),
    ],
)
def test_a_slip_is_told_with_what_was_meant(words: dict[str, str], says: str) -> None:
    with pytest.raises(UnreadableError) as error:
        decisions_asked(words, 1000.0)
    assert (error.value.name, str(error.value)) == (list(words)[-1], says)


def test_what_is_on_the_closed_lists_is_asked_for() -> None:
    words = {
        "verdict": "neutral",
        "tier": "full",
        "reason": "no_model",
        "mistake": "none",
        "since": "9m",
        "until": "1m",
    }
    asked = decisions_asked(words, 1000.0)
    assert (asked.verdict, asked.tier, asked.reason, asked.misroute) == ("neutral", "full", "no_model", "none")
    assert (asked.since.seconds, asked.until.seconds) == (460, 940)
