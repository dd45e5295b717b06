"""What each QoS tier is promised, and what is judged of requests. Facts rows: SLA targets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controlplane.model import Endpoint, QosTier
from controlplane.policy.faults import faults
from controlplane.policy.settings import Policy
from controlplane.policy.sla import Cause, Finished, Judged, Judgement, SlaRules, SlaTarget, judge

TARGET = SlaTarget(first_token_ms=2000, output_token_ms=100, whole_ms=60_000)
STREAMED = Finished(Endpoint.CHAT, 200, whole_seconds=5.0, first_token_seconds=1.0, output_tokens=40, stream=True)
WHOLE = Finished(Endpoint.CHAT, 200, whole_seconds=5.0, first_token_seconds=5.0, output_tokens=40)

MET = Judged(Judgement.MET)
REJECTED = Judged(Judgement.REJECTED)


def violated(cause: Cause) -> Judged:
    return Judged(Judgement.VIOLATED, cause)


def not_counted(cause: Cause) -> Judged:
    return Judged(Judgement.NOT_COUNTED, cause)


def test_facts_sla_targets_are_settings_of_each_tier_and_a_better_tier_is_promised_more() -> None:
    """Facts row: its own gaps (targets that cannot be set)."""
    rules = SlaRules()
    tiers = [rules.of(tier) for tier in QosTier]
    assert [target.first_token_ms for target in tiers] == [2000, 5000, 30_000]
    assert [target.output_token_ms for target in tiers] == [100, 200, 500]
    assert SlaRules(standard=TARGET).of(QosTier.STANDARD) == TARGET


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (STREAMED, MET),
        (replace(STREAMED, first_token_seconds=2.0), MET),
        (replace(STREAMED, first_token_seconds=2.001), violated(Cause.FIRST_TOKEN)),
        (WHOLE, MET),  # the first byte of an answer that is not streamed is its last
        (replace(WHOLE, whole_seconds=6.0), MET),  # 2000 ms and 40 x 100 ms
        (replace(WHOLE, whole_seconds=6.001), violated(Cause.OUTPUT_TOKENS)),
        (replace(STREAMED, whole_seconds=6.001), violated(Cause.OUTPUT_TOKENS)),
        (replace(WHOLE, output_tokens=1, whole_seconds=2.1), MET),  # the first token is no slow token
        (replace(WHOLE, output_tokens=2000, whole_seconds=60.1), violated(Cause.WHOLE)),
        (replace(WHOLE, output_tokens=None, whole_seconds=50.0), MET),
        (replace(WHOLE, endpoint=Endpoint.MODELS), not_counted(Cause.NOT_GENERATED)),
        (replace(WHOLE, endpoint=Endpoint.EMBEDDINGS), not_counted(Cause.NOT_GENERATED)),
        # failures
        (replace(WHOLE, status=500), violated(Cause.FAILED)),
        (replace(WHOLE, status=503, refused=True), violated(Cause.FAILED)),
        (replace(WHOLE, status=504), violated(Cause.TIMED_OUT)),
        (replace(STREAMED, timed_out=True), violated(Cause.TIMED_OUT)),
        (replace(STREAMED, cut_short=True), violated(Cause.FAILED)),
        (replace(WHOLE, status=429), violated(Cause.FAILED)),  # the engine's, not ours
        # turned away
        (replace(WHOLE, status=429, refused=True), REJECTED),
        # the client's own
        (replace(WHOLE, status=400), not_counted(Cause.CLIENT_ERROR)),
        (replace(WHOLE, status=404, refused=True), not_counted(Cause.CLIENT_ERROR)),
        (replace(WHOLE, status=400, whole_seconds=100.0), not_counted(Cause.CLIENT_ERROR)),
        # gone
        (replace(STREAMED, client_left=True), not_counted(Cause.CLIENT_LEFT)),
        (replace(STREAMED, client_left=True, cut_short=True), not_counted(Cause.CLIENT_LEFT)),
        (
            replace(STREAMED, status=0, client_left=True, first_token_seconds=None, whole_seconds=1.9),
            not_counted(Cause.CLIENT_LEFT),
        ),
        (
            replace(STREAMED, status=0, client_left=True, first_token_seconds=None, whole_seconds=2.1),
            violated(Cause.FIRST_TOKEN),
        ),
        (
            replace(WHOLE, status=0, client_left=True, output_tokens=None, whole_seconds=61.0),
            violated(Cause.WHOLE),
        ),
    ],
)
def test_a_request_is_judged_by_what_its_client_got(request_: Finished, says: Judged) -> None:
    assert judge(request_, TARGET) == says


def test_without_targets_only_failures_violate() -> None:
    nothing = SlaTarget()
    assert judge(replace(WHOLE, whole_seconds=1e6), nothing) == MET
    assert judge(replace(WHOLE, status=502), nothing) == violated(Cause.FAILED)


def test_an_answer_of_which_nothing_is_known_that_was_promised_does_not_count() -> None:
    unknown = replace(WHOLE, output_tokens=None)
    assert judge(unknown, SlaTarget(first_token_ms=1, output_token_ms=1)) == not_counted(Cause.NOT_MEASURED)


def test_tokens_alone_may_be_promised() -> None:
    assert judge(WHOLE, SlaTarget(output_token_ms=125)) == MET
    assert judge(WHOLE, SlaTarget(output_token_ms=124)) == violated(Cause.OUTPUT_TOKENS)


@given(
    st.builds(
        Finished,
        endpoint=st.sampled_from(Endpoint),
        status=st.sampled_from((0, 200, 400, 404, 429, 500, 503, 504)),
        whole_seconds=st.floats(0, 100),
        first_token_seconds=st.none() | st.floats(0, 100),
        output_tokens=st.none() | st.integers(0, 1000),
        stream=st.booleans(),
        refused=st.booleans(),
        client_left=st.booleans(),
        timed_out=st.booleans(),
        cut_short=st.booleans(),
    ),
    st.floats(0, 100),
)
def test_slower_is_never_better(request: Finished, more: float) -> None:
    slower = replace(
        request,
        whole_seconds=request.whole_seconds + more,
        first_token_seconds=None if request.first_token_seconds is None else request.first_token_seconds + more,
    )
    if judge(request, TARGET).judgement is Judgement.VIOLATED:
        assert judge(slower, TARGET).judgement is Judgement.VIOLATED


def test_a_rate_that_would_outlive_its_window_is_a_fault() -> None:
    assert faults(Policy()) == ()
    (fault,) = faults(Policy(sla=SlaRules(window_seconds=10, stale_seconds=11)))
    assert fault.startswith("sla.stale_seconds: ")
