"""The decision as bytes says the same as the decision as a message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from controlplane.decision_bytes import decision_bytes
from controlplane.features import NO_TEXT, Category, Features
from controlplane.messages import decision_message
from controlplane.model import (
    Action,
    Alternative,
    Budget,
    Contexts,
    Contribution,
    Decision,
    Endpoint,
    EstimateSource,
    FormatTier,
    Pressure,
    QosTier,
    Reason,
    Refusal,
    Sensitivity,
    TierPressure,
    Verdict,
    WouldDo,
)
from headrace_protos.headrace.v1 import decision_pb2
from support.asks import make_pool

# Few of each, so that parts of decisions come again; zeros, which a message does not say, are among them.
_words = st.sampled_from(["", "a", "Grüße"])
_counts = st.sampled_from([0, 1, 300, 2**31])
_numbers = st.sampled_from([0.0, 0.5, 1.0, 3.25])
_texts = st.lists(_words, max_size=2).map(tuple)
_reasons = st.lists(st.sampled_from(Reason), max_size=2).map(tuple)
_pools = st.builds(
    make_pool, st.sampled_from(["full", "quantized"]), st.sampled_from(["short", "long"]), model=st.just("llama")
)
_alternatives = st.builds(
    Alternative,
    pool=_words,
    excluded_by=st.none() | _words,
    scores=st.dictionaries(_words, _numbers, max_size=2).map(lambda scores: tuple(scores.items())),
    total=_numbers,
    overridden=_texts,
)
_contributions = st.builds(Contribution, name=_words, points=_numbers, why=_words)
_features = st.builds(
    Features,
    text=st.just(NO_TEXT) | _counts.map(lambda count: NO_TEXT._replace(total=count)),
    messages=_counts,
    tools=_counts,
    calls=_counts,
    images=_counts,
    token_ids=_counts,
    schema_bytes=_counts,
    is_cut=st.booleans(),
)
_decisions = st.builds(
    Decision,
    action=st.sampled_from(Action),
    endpoint=st.sampled_from(Endpoint),
    model=_words,
    reasons=_reasons,
    pool=st.none() | _pools,
    sensitivity=st.none()
    | st.builds(
        Sensitivity,
        verdict=st.sampled_from(Verdict),
        score=_numbers,
        contributions=st.lists(_contributions, max_size=2).map(tuple),
    ),
    budget=st.none()
    | st.builds(
        Budget,
        prompt_tokens=_counts,
        output_tokens=_counts,
        category=st.sampled_from(Category),
        ratio=_numbers,
        output_from=_words,
        likely_prompt_tokens=_counts,
        rests_on=st.sampled_from(EstimateSource),
        samples=_counts,
    ),
    alternatives=st.lists(_alternatives, max_size=2).map(tuple),
    shortlist=st.lists(_alternatives, max_size=2).map(tuple),
    would_change=_texts,
    pinned=st.none() | st.sampled_from(FormatTier),
    session=st.none() | _words,
    tenant=_words,
    known_by=_words,
    qos_tier=st.none() | st.sampled_from(QosTier),
    stream=st.booleans(),
    refusal=st.none()
    | st.builds(
        Refusal,
        status=st.sampled_from([400, 503]),
        type=_words,
        code=_words,
        message=_words,
        param=st.none() | _words,
        retry_after=st.none() | _numbers,
    ),
    waits_for=_texts,
    waited_seconds=_numbers,
    pressure=st.none()
    | st.builds(
        TierPressure,
        tier=st.sampled_from(QosTier),
        pressure=st.sampled_from(Pressure),
        level=_numbers,
        signal=_words,
        sla_violation_rate=st.none() | _numbers,
        kv_cache_use=st.none() | _numbers,
        waiting_per_node=st.none() | _numbers,
    ),
    pressed_pool=_words,
    output_limit=st.none() | _counts,
    asked_model=_words,
    held_seconds=_numbers,
    would_do=st.none()
    | st.builds(
        WouldDo, action=st.sampled_from(Action), reasons=_reasons, pool=_words, output_limit=st.none() | _counts
    ),
    contexts=st.none() | st.builds(Contexts, chosen=_counts, smaller=_counts, larger=_counts),
    features=st.none() | _features,
    choices=_counts,
    output_cap=st.none() | _counts,
)


@given(_decisions)
def test_the_bytes_of_a_decision_are_those_of_its_message(decision: Decision) -> None:
    recorded = structs.replace(decision, alternatives=decision.shortlist)
    assert decision_pb2.Decision.FromString(decision_bytes(decision)) == decision_message(recorded)
