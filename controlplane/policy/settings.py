"""The policy as a person configures it: a tree of frozen values with a good default for everything.

Plain types with `annotated_types` bounds, so that the configuration can validate the tree from YAML and print it back;
`table.compile_table` makes it ready for use. What bounds cannot say, contradictions between fields, `faults` finds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt, MinLen

from controlplane.model import FormatTier, QosTier
from controlplane.policy.qos import QosRules
from controlplane.policy.sla import SlaRules
from controlplane.policy.words import DEFAULT_WORDS, WORDS_VERSION, WordList

Share = Annotated[float, Ge(0), Le(1)]
Tokens = Annotated[int, Ge(0)]
Points = Annotated[float, Ge(-1000), Le(1000)]
Name = Annotated[str, MinLen(1)]
PerMinute = Annotated[int, Ge(1), Le(1_000_000_000)]


# --- sensitivity ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SensitivityWeights:
    """Points that each observation adds to the sensitivity score; positive ones speak for the full tier."""

    greedy: Points = 70  # temperature 0, or top_k 1
    near_greedy: Points = 40  # temperature at most `near_greedy_temperature`, or a very narrow top_p or min_p
    hot: Points = -70  # temperature above `hot_temperature`
    hot_by_default: Points = (
        -45
    )  # no temperature given: engines use 1.0 unless their model's own configuration says otherwise
    structured_words: Points = 60  # words of code, math, reasoning or data; scaled by how strongly they speak
    # the same, above `hot_temperature`: enough that what is creative too is not tolerant
    structured_words_when_hot: Points = 40
    creative_words: Points = -60  # words of creative or conversational tasks; scaled likewise
    structured_output: Points = 50  # response_format, guided decoding
    tools: Points = 40
    reasoning: Points = 40  # reasoning effort or thinking asked for
    logprobs: Points = 30
    seed: Points = 20
    several_choices: Points = -10
    long_output: Points = 25  # more than `long_output_tokens` expected


@dataclass(frozen=True, slots=True)
class PositionWeights:
    """How much words count by where they stand. A conversation's only user turn is its last one."""

    system: Share = 1.0
    first_user: Share = 0.8
    last_user: Share = 1.0


@dataclass(frozen=True, slots=True)
class SensitivityRules:
    """How a request's sensitivity to quantization is judged.

    A score of at least `sensitive_at` is sensitive, of at most `tolerant_at` tolerant, between them neutral.
    `head_chars` and `tail_chars` bound what is read of each of the system prompt, the first and the last user turn.
    Greedy decoding with structured-output words, and heat above 0.7 with creative words, decide by
    themselves with these weights.
    """

    sensitive_at: Points = 100
    tolerant_at: Points = -100
    near_greedy_temperature: Annotated[float, Ge(0), Le(2)] = 0.3
    hot_temperature: Annotated[float, Ge(0), Le(2)] = 0.7
    narrow_top_p: Share = 0.1
    narrow_min_p: Share = 0.5
    long_output_tokens: Tokens = 1000
    weights: SensitivityWeights = SensitivityWeights()
    positions: PositionWeights = PositionWeights()
    head_chars: Annotated[int, Ge(0), Le(65536)] = 256
    tail_chars: Annotated[int, Ge(0), Le(65536)] = 128
    words_version: Name = WORDS_VERSION
    words: tuple[WordList, ...] = DEFAULT_WORDS


# --- estimation ----------------------------------------------------------------------------------------------------


class Estimator(StrEnum):
    """How prompt tokens are estimated."""

    LINEAR = "linear"  # a sum over what the text consists of, learned by least squares
    RATIO = "ratio"  # bytes by a learned ratio per category, as token-budget pool routing does (arXiv 2604.09613)


@dataclass(frozen=True, slots=True)
class EstimationRules:
    """How the estimate of a model's tokens is learned from the usage that its engines report.

    Half of what was learned is forgotten after `half_life_seconds`. The linear estimate is conservative by the margin
    that the share `margin_quantile` of recent requests stayed within; the ratio by `gamma` mean deviations, its average
    keeping `beta` of itself with each sample. `output_quantile` is the share of answers without a cap of the client's
    that were no longer than what is expected.
    A tenant is one voice of at most `tenant_weight` samples, which count in full while they agree with what the others
    teach within `agreement` (as a share, root mean square), and less the more they differ; a single sample likewise
    with `sample_agreement`.
    """

    estimator: Estimator = Estimator.LINEAR
    half_life_seconds: Annotated[float, Gt(0)] = 86_400.0
    margin_quantile: Annotated[float, Ge(0.5), Lt(1)] = 0.88
    output_quantile: Annotated[float, Ge(0.5), Lt(1)] = 0.9
    beta: Annotated[float, Gt(0), Lt(1)] = 0.95
    gamma: Annotated[float, Ge(0)] = 1.0
    tenant_weight: Annotated[float, Ge(1)] = 200.0
    agreement: Annotated[float, Gt(0), Le(1)] = 0.15
    sample_agreement: Annotated[float, Gt(0)] = 0.5


@dataclass(frozen=True, slots=True)
class ThresholdRules:
    """When another bound between context classes is suggested. It is only shown: engines have to be set up by it too.

    Only where it saves at least `worthwhile` of the fleet's capacity more than the bounds in force, for `patience`
    evaluations on end, one a minute, and with at least `minimum_samples` requests in the distribution.
    """

    worthwhile: Share = 0.02
    patience: Annotated[int, Ge(1)] = 6
    minimum_samples: Annotated[float, Ge(1)] = 1000.0


# --- formats and contexts ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FormatRules:
    """Which quantization formats are full and which quantized, each list with the highest fidelity first.

    A listed name also covers its variants: `gguf-q4` covers `gguf-q4_k_m`. fp8 and int8 are quantized unless moved: a
    pool mixes the formats of its tier, so a format in `full` serves requests that asked for the best. Formats on
    neither list are `unknown`.
    """

    full: tuple[Name, ...] = ("fp32", "bf16", "fp16", "gguf-f32", "gguf-bf16", "gguf-f16")
    quantized: tuple[Name, ...] = (
        "fp8",
        "int8",
        "gguf-q8",
        "gguf-q6",
        "gguf-q5",
        "nvfp4",
        "mxfp4",
        "int4-awq",
        "int4-gptq",
        "gguf-q4",
        "gguf-iq4",
        "int4-bnb",
        "int4",
        "gguf-q3",
        "gguf-iq3",
        "gguf-q2",
        "gguf-iq2",
    )
    unknown: FormatTier = FormatTier.QUANTIZED


@dataclass(frozen=True, slots=True)
class ContextClass:
    """Pools whose nodes take at most `max_context` tokens of prompt and output; None is unbounded."""

    name: Name
    max_context: Annotated[int, Gt(0)] | None = None


# --- gain ----------------------------------------------------------------------------------------------------------


Gain = Annotated[float, Ge(0.1), Le(10)]


@dataclass(frozen=True, slots=True)
class HardwareGain:
    """What to expect of one hardware class until its nodes have told."""

    hardware_class: Name
    gain: Gain


@dataclass(frozen=True, slots=True)
class GainRules:
    """How much faster quantized formats decode than full ones on the same hardware at equal load, as a factor.

    `priors` and `default`, for all other classes, count until the load reports of a model's nodes have told about
    `enough_seconds` in which full and quantized nodes of one class decoded at comparable load. What they told is kept
    between `least` and `most`, and half of it is forgotten after `half_life_seconds`. Below `worthwhile` a tolerant
    request has no reason to leave the full tier.
    """

    # Published for INT4 over FP16 at equal batch: 1.7 to 1.9 and 1.3 to 1.5. The default is the lowest of these.
    priors: tuple[HardwareGain, ...] = (HardwareGain("a100-sxm4", 1.8), HardwareGain("rtx-4090", 1.4))
    default: Gain = 1.3
    worthwhile: Gain = 1.1
    least: Gain = 0.5
    most: Gain = 4.0  # decoding reads the weights, of which a quarter is left
    enough_seconds: Annotated[float, Gt(0)] = 300.0
    half_life_seconds: Annotated[float, Gt(0)] = 3600.0


# --- selection -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """When a pool is overloaded (requests leave it), and when another has room to take them.

    The second is stricter than the first, so that traffic does not swing between two busy pools. Waiting requests are
    counted per ready node; KV-cache use is a share. A load that is not known counts as room.
    """

    overloaded_waiting_per_node: Annotated[float, Ge(0)] = 2.0
    overloaded_kv_cache_use: Share = 0.95
    room_waiting_per_node: Annotated[float, Ge(0)] = 0.0
    room_kv_cache_use: Share = 0.85


@dataclass(frozen=True, slots=True)
class ScoreWeights:
    """Weights of the marks (each 0 to 1) by which pools are compared. By default each of
    the first four outweighs all below it (context up to three classes)."""

    spot: Annotated[float, Ge(0)] = 32  # of requests whose QoS tier prefers spot nodes
    room: Annotated[float, Ge(0)] = 16
    tier: Annotated[float, Ge(0)] = 8
    context: Annotated[float, Ge(0)] = 4
    gain: Annotated[float, Ge(0)] = 0.3
    headroom: Annotated[float, Ge(0)] = 0.2
    on_demand: Annotated[float, Ge(0)] = 0.1
    fidelity: Annotated[float, Ge(0)] = 0.02


@dataclass(frozen=True, slots=True)
class SelectionRules:
    """How a pool is chosen. `retry_after_seconds` goes with refusals for which a later try may succeed."""

    sensitive_may_use_quantized: bool = True  # when no full pool is ready, or none that holds the request
    load: LoadLimits = LoadLimits()
    weights: ScoreWeights = ScoreWeights()
    retry_after_seconds: Annotated[float, Ge(1), Le(3600)] = 5


# --- waiting -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WaitingRules:
    """Bounds of waiting for room in the filter; who is beyond them gets 429.

    `longest_seconds` is for one request, and counts up to `gateway.max_wait`; `most_waiting` is of one filter worker.
    """

    longest_seconds: Annotated[float, Ge(0), Le(3600)] = 30.0
    most_waiting: Annotated[int, Ge(0), Le(100_000)] = 1000


# --- sessions ------------------------------------------------------------------------------------------------------


class LostTier(StrEnum):
    """What becomes of a session whose format tier is gone, or too small for it now while the other one is not."""

    REPIN = "repin"  # it goes on in the other tier, with a reason in the decision
    REFUSE = "refuse"  # 503 until the tier is back; one that is too small is left to refuse it


@dataclass(frozen=True, slots=True)
class QuiescenceRules:
    """For how long a node that has registered anew takes only new sessions.

    With `exempt_same_engine` a node takes all at once that proves to be the same engine, neither started nor loaded
    anew, and describes itself as before: its agent was restarted, or lost its lease.
    """

    seconds: Annotated[float, Ge(0), Le(3600)] = 60.0
    exempt_same_engine: bool = False


@dataclass(frozen=True, slots=True)
class SessionRules:
    """Where session ids are found, and how long their format tier is remembered.

    Headers come first, in this order, then body fields (dotted paths). Request ids are never sessions.
    `ttl_seconds` counts from the last request; `max_sessions` bounds the memory, the least recently used ones go.
    """

    headers: tuple[Name, ...] = (
        "x-session-id",
        "x-session-token",
        "x-conversation-id",
        "x-claude-code-session-id",
        "x-session-affinity",
        "session-id",
        "session_id",
    )
    body_fields: tuple[Name, ...] = ("metadata.session_id", "session_params.session_id", "session_id")
    ttl_seconds: Annotated[float, Gt(0)] = 3600.0
    max_sessions: Annotated[int, Ge(1)] = 100_000
    lost_tier: LostTier = LostTier.REPIN
    quiescence: QuiescenceRules = QuiescenceRules()


# --- tenants -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tenant:
    """What holds for one tenant's requests: their QoS tier, the format tier that they prefer, whatever they are, and
    the models that they may use by their ids, all when there are none.

    `keys` are digests of the tenant's API keys, as `headrace keys new` prints them; each is as good as the others.
    Without `requests_per_minute` or `tokens_per_minute` there is no limit to them.
    """

    name: Name
    qos_tier: QosTier = QosTier.STANDARD
    prefers: FormatTier | None = None
    keys: tuple[Name, ...] = ()
    models: tuple[Name, ...] = ()
    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None


@dataclass(frozen=True, slots=True)
class TenantRules:
    """Who a request is from, and what holds for it.

    A tenant is named by `header`, which a proxy of your own sets and strips from what clients send; else by the claim
    of a token that Envoy verified (`gateway.jwt`); else by an API key of one that is `known`. Where none names one,
    clients are told apart by their credentials, unproven, or with `required` get 401. The header counts only when who
    connects to Envoy is within `trusted_peers`, networks such as 10.1.0.0/16; from anybody when there are none.
    `pass_keys_on` lets engines see the API keys, which are taken off requests otherwise.

    Sessions of different tenants are different ones. All tenants that are not `known` are of `qos_tier`, and each has
    `requests_per_minute` and `tokens_per_minute`; clients without any name have them together.
    `client_may_prefer` lists the tiers that a client may ask for by `x-headrace-format`; what it asks for beyond them
    does not count. A client's preference is stronger than its tenant's, a session's pin is stronger still.
    """

    header: Name | None = None
    trusted_peers: tuple[Name, ...] = ()
    required: bool = False
    pass_keys_on: bool = False
    known: tuple[Tenant, ...] = ()
    qos_tier: QosTier = QosTier.STANDARD
    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    client_may_prefer: tuple[FormatTier, ...] = (FormatTier.FULL, FormatTier.QUANTIZED)

    @property
    def have_rates(self) -> bool:
        """Whether anybody is held to a rate."""
        everybody: tuple[Tenant | TenantRules, ...] = (self, *self.known)
        return any(each.requests_per_minute or each.tokens_per_minute for each in everybody)


# --- composition ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompositionRules:
    """When the fleet's composition, and not its scheduling, is the problem: too much of the traffic needs full nodes.

    Above the share `needs_full_above` of at least `minimum_requests` within `window_seconds` it is said; below
    `clear_below`, or with fewer than half as many requests, no longer.
    """

    window_seconds: Annotated[float, Ge(60), Le(21_600)] = 900.0
    needs_full_above: Share = 0.7
    clear_below: Share = 0.65
    minimum_requests: Annotated[int, Ge(1)] = 200


# --- the whole -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that decides where a request goes, besides the request and the fleet.

    `default_model` serves requests that name none; `context_classes` ascend and end with an unbounded one.
    """

    default_model: Name | None = None
    sensitivity: SensitivityRules = SensitivityRules()
    estimation: EstimationRules = EstimationRules()
    formats: FormatRules = FormatRules()
    context_classes: Annotated[tuple[ContextClass, ...], MinLen(1)] = (
        ContextClass("short", 8192),
        ContextClass("long"),
    )
    thresholds: ThresholdRules = ThresholdRules()
    gain: GainRules = GainRules()
    selection: SelectionRules = SelectionRules()
    waiting: WaitingRules = WaitingRules()
    qos: QosRules = field(default_factory=QosRules)
    sessions: SessionRules = SessionRules()
    tenants: TenantRules = TenantRules()
    composition: CompositionRules = CompositionRules()
    sla: SlaRules = field(default_factory=SlaRules)


REQUEST_ID_HEADERS = frozenset({"x-request-id", "x-correlation-id", "x-trace-id", "request-id", "traceparent"})
# The top-level body fields that may hold a session id; the parser looks at no others.
SESSION_FIELD_ROOTS = frozenset(
    {"metadata", "session_params", "session_id", "conversation_id", "conversation", "user", "prompt_cache_key"}
)
