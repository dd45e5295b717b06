"""The words of Headrace as frozen values: nodes, pools, requests and decisions.

What is made anew for each request is a `msgspec.Struct`, which takes a tenth of a dataclass's time to make; of those
that hold nothing that could refer back to them, the garbage collector knows nothing.

Nothing here computes but the names of a pool's clusters; `fleet` makes pools from node sessions, `policy` makes
decisions from requests and pools.
Units: tokens for context and budget, bytes for memory, seconds for time, shares in 0..1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from msgspec import Struct

from controlplane.features import NO_FEATURES, Category, Features


class FormatTier(StrEnum):
    """The class of quantization formats that a session is pinned to."""

    FULL = "full"
    QUANTIZED = "quantized"


class CapacityType(StrEnum):
    ON_DEMAND = "on_demand"
    SPOT = "spot"


class QosTier(StrEnum):
    """What a tenant is promised; the best first."""

    GUARANTEED = "guaranteed"
    STANDARD = "standard"
    BEST_EFFORT = "best_effort"


class Pressure(IntEnum):
    """How hard a pool is pressed, in the order of severity."""

    NORMAL = 0
    ELEVATED = 1
    CRITICAL = 2


class Verdict(StrEnum):
    """How a request would suffer from quantization."""

    SENSITIVE = "sensitive"
    NEUTRAL = "neutral"
    TOLERANT = "tolerant"


class Endpoint(StrEnum):
    """The API that a request speaks; `OTHER` is routed by its model alone."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    EMBEDDINGS = "embeddings"
    MODELS = "models"
    OTHER = "other"


class Action(StrEnum):
    """What is done with a request."""

    PASS = "pass"  # noqa: S105 - what is done, no password
    DEGRADE = "degrade"  # send it with a cap on its output
    FALLBACK = "fallback"  # send it to another model
    REJECT = "reject"
    QUEUE = "queue"  # wait until a pool that may serve it has room, then decide again
    ANSWER = "answer"  # Headrace answers itself, such as the list of models


# --- nodes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model as one node serves it.

    `id` is the fleet's canonical name, `served_name` the name the engine answers to, `aliases` further names that the
    engine itself accepts. `max_context` is in tokens of prompt and output together, for one sequence;
    `max_sequences` is how many run at once; `kv_cache_tokens` is the whole KV cache, 0 when unknown.
    """

    id: str
    format: str
    max_context: int
    max_sequences: int
    served_name: str = ""
    aliases: tuple[str, ...] = ()
    kv_cache_tokens: int = 0


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What a node says of itself when it registers. Immutable: a change is a new registration.

    `address` is `ip:port` of its OpenAI-compatible HTTP server. `vram_bytes` is the total over all its GPUs.
    `health_path` answers 200 when the engine can serve; empty means a TCP connection is the check. Equal values of
    `engine_instance` prove that the engine neither started nor loaded a model in between; empty proves nothing.
    """

    node_id: str
    address: str
    models: tuple[ServedModel, ...]
    engine: str = ""
    engine_version: str = ""
    gpu_model: str = ""
    gpu_count: int = 0
    vram_bytes: int = 0
    hardware_class: str = ""
    capacity_type: CapacityType = CapacityType.ON_DEMAND
    health_path: str = "/health"
    labels: Mapping[str, str] = field(default_factory=dict)
    engine_instance: str = ""


@dataclass(frozen=True, slots=True)
class NodeSession:
    """One registration of a node. `registered_at` is in Unix seconds; `lease_id` is etcd's lease, 0 without one.

    Until `settles_at`, in Unix seconds, the node quiesces: it takes only sessions that began after `quiesces_since`.
    """

    session_id: str
    spec: NodeSpec
    registered_at: float
    lease_id: int = 0
    draining: bool = False
    settles_at: float = 0.0
    quiesces_since: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """One load report. `kv_cache_use` is a share; None is unknown, which is not the same as idle.

    `uncounted` says that the engine does not tell what runs and waits, which are then 0; `streams_usage` whether its
    streams tell token counts unasked; `sampled` that somebody else was asked, who may have looked some seconds before:
    good enough for pressure, not for how many more requests there is room for. `reported_at` is in Unix seconds by the
    control plane's clock when the report arrived.
    """

    running: int
    waiting: int
    kv_cache_use: float | None = None
    tokens_per_second: float | None = None
    ttft_seconds: float | None = None
    healthy: bool = True
    uncounted: bool = False
    streams_usage: bool | None = None
    sampled: bool = False
    reported_at: float = 0.0


# --- pools ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """The load of a pool's ready nodes, summed; `kv_cache_use` is the mean over the nodes that report it."""

    running: int
    waiting: int
    kv_cache_use: float | None = None


# What can be overridden: the parts of a pool's load, and the share of its requests that missed their targets.
SIGNALS = ("waiting", "running", "kv_cache_use", "sla_violation_rate")


@dataclass(frozen=True, slots=True)
class Override:
    """What an operator has put in the place of a pool's measured load until `expires_at`, in Unix seconds.

    The signals are as in PoolLoad; the violation rate is every tier's. None leaves one as it is measured.
    """

    expires_at: float
    waiting: int | None = None
    running: int | None = None
    kv_cache_use: float | None = None
    sla_violation_rate: float | None = None

    @property
    def signals(self) -> tuple[str, ...]:
        """Those of SIGNALS that it sets."""
        return tuple(signal for signal in SIGNALS if getattr(self, signal) is not None)


@dataclass(frozen=True, slots=True)
class TierPressure:
    """How hard a pool is pressed as one QoS tier has to take it.

    `level` is 0 where the tier's `elevated_at` is reached and 1 where `critical_at` is, by `signal`, the one
    that is nearest to it; empty where none is known. `sla_violation_rate` is the one that counts for the tier; the
    other signals are the pool's, the same for all tiers. None is missing.
    """

    tier: QosTier
    pressure: Pressure = Pressure.NORMAL
    level: float = 0.0
    signal: str = ""
    sla_violation_rate: float | None = None
    kv_cache_use: float | None = None
    waiting_per_node: float | None = None


_OPEN = "@all"


@dataclass(frozen=True, slots=True)
class Pool:
    """All nodes alike in model, format tier, context class, capacity type and the engine's name for the model.

    One pool is one Envoy cluster, named `name`, of its settled nodes. `max_context` is the smallest of its nodes'
    (tokens), so that what fits the pool fits whichever node Envoy picks. `max_sequences` is summed over ready nodes.
    `load` is None when no ready node has a fresh report and no operator has overridden it; `overridden` names the
    signals of it that one has. `gain` is how many times faster its ready nodes are expected to decode than full ones of
    the same hardware; 1 in the full tier. Of the ready nodes `quiescing_nodes` take new sessions only, for `settles_in`
    seconds until the first of them takes all; sessions are new to all of them that began after `quiesces_since`, in
    Unix seconds. `pressures` has one for each QoS tier, or none where nobody has looked; `missing_signals` names those
    that nobody reports, which is not the same as all being well.
    """

    name: str
    model: str
    tier: FormatTier
    context_class: str
    capacity_type: CapacityType
    max_context: int
    max_sequences: int
    ready_nodes: int
    nodes: int
    served_name: str
    aliases: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()  # highest fidelity first
    hardware_classes: tuple[str, ...] = ()
    load: PoolLoad | None = None
    overridden: tuple[str, ...] = ()
    gain: float = 1.0
    quiescing_nodes: int = 0
    settles_in: float = 0.0
    quiesces_since: float = 0.0
    pressures: tuple[TierPressure, ...] = ()
    missing_signals: tuple[str, ...] = ()

    @property
    def settled_nodes(self) -> int:
        """The ready nodes that take requests of any session."""
        return self.ready_nodes - self.quiescing_nodes

    def pressure_of(self, tier: QosTier) -> TierPressure:
        for found in self.pressures:
            if found.tier is tier:
                return found
        return TierPressure(tier)

    @property
    def open_cluster(self) -> str:
        """The cluster of all its ready nodes, also of those that quiesce."""
        return open_cluster(self.name) if self.quiescing_nodes else self.name

    @property
    def since_cluster(self) -> str:
        """While all its ready nodes quiesce: the cluster of just these, which never gets another one."""
        return since_cluster(self.name, self.quiesces_since)

    @property
    def clusters(self) -> tuple[str, ...]:
        """All that it has."""
        if not self.quiescing_nodes:
            return (self.name,)
        all_quiesce = () if self.settled_nodes else (self.since_cluster,)
        return (self.name, self.open_cluster, *all_quiesce)


def open_cluster(pool: str) -> str:
    """The name of the cluster that a pool has while some of its nodes quiesce; no pool's name has an `@`."""
    return f"{pool}{_OPEN}"


def since_cluster(pool: str, since: float) -> str:
    """The name of the cluster for sessions that began after all nodes of a pool had registered anew; in Unix
    milliseconds."""
    return f"{pool}@{since * 1000:.0f}"


def is_pools_own(cluster: str) -> bool:
    """Whether a cluster is for all sessions, and not only for those that are new to its nodes."""
    return "@" not in cluster


class Pin(Struct, frozen=True, gc=False):
    """What a session keeps to. It began after all that `since` says, in Unix seconds, was known to have registered."""

    tier: FormatTier
    since: float = 0.0


# --- requests ------------------------------------------------------------------------------------------------------


class HttpRequest(Struct, frozen=True, gc=False):
    """A whole request as it reached the gateway. Header names are lower-case; the last of equal names counts."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Ask(Struct, frozen=True, gc=False):
    """What routing needs to know of a request; every field is lenient, None or empty when the request says nothing.

    `system`, `first_user` and `last_user` are bounded excerpts of the texts that tell about the task. `output_cap` is
    the client's own limit on the output tokens of each of the `choices`, `output_floor` how many it must be let have.
    `tenant` tells clients apart, by a name or by a digest of the credential; empty for one that shows neither.
    `known_by` says how a name was proven: `header`, `token`, or `key:` and the beginning of the key's digest.
    `preference` is the format tier that the client asks for; `preference_unknown` says that it asks for what is none.
    """

    endpoint: Endpoint
    model: str | None
    system: str = ""
    first_user: str = ""
    last_user: str = ""
    features: Features = NO_FEATURES
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    logprobs: bool = False
    structured_output: bool = False
    reasoning: bool = False
    choices: int = 1
    output_cap: int | None = None
    output_floor: int = 0
    stream: bool = False
    session: str | None = None
    tenant: str = ""
    known_by: str = ""
    preference: FormatTier | None = None
    preference_unknown: bool = False
    debug: bool = False
    body_bytes: int = 0


# --- decisions -----------------------------------------------------------------------------------------------------


class Contribution(Struct, frozen=True, gc=False):
    """One named part of the sensitivity score; positive points speak for the full tier."""

    name: str
    points: float
    why: str


class Sensitivity(Struct, frozen=True, gc=False):
    verdict: Verdict
    score: float
    contributions: tuple[Contribution, ...] = ()


class EstimateSource(StrEnum):
    """What an estimate rests on."""

    PRIOR = "prior"  # nothing is learned of the model's requests of this category
    LEARNED = "learned"
    PINNED = "pinned"  # learned, and kept by an operator as it was


class Budget(Struct, frozen=True, gc=False):
    """Tokens that a request is expected to need. The prompt has `likely_prompt_tokens`, and hardly more than
    `prompt_tokens`; that rests on `samples` requests. `ratio` is in bytes of text per token of the latter;
    `output_from` says where the output estimate comes from: the client's cap, or as `rests_on`."""

    prompt_tokens: int
    output_tokens: int
    category: Category
    ratio: float
    output_from: str
    likely_prompt_tokens: int
    rests_on: EstimateSource
    samples: int = 0

    @property
    def total(self) -> int:
        return self.prompt_tokens + self.output_tokens


class Reason(StrEnum):
    """Why a pool was chosen or a request refused. Closed, so that it can be a metric label."""

    SENSITIVE_NEEDS_FULL = "sensitive_needs_full"
    NEUTRAL_PREFERS_FULL = "neutral_prefers_full"
    TOLERANT_PREFERS_QUANTIZED = "tolerant_prefers_quantized"
    TOLERANT_GAINS_TOO_LITTLE = "tolerant_gains_too_little"  # on the hardware of the quantized nodes; full serves it
    CLIENT_PREFERENCE = "client_preference"
    TENANT_PREFERENCE = "tenant_preference"
    PREFERENCE_UNKNOWN = "preference_unknown"  # the client asks for what is no format tier, which does not count
    PREFERENCE_NOT_ALLOWED = "preference_not_allowed"  # the policy does not let clients ask for the tier
    PREFERENCE_PINNED = "preference_pinned"  # the client asks for another tier than the one its session keeps to
    PREFERENCE_NOT_MET = (
        "preference_not_met"  # the tier that the client asks for could not serve it, the other one does
    )
    SESSION_PINNED = "session_pinned"
    TIER_UNAVAILABLE = "tier_unavailable"  # the preferred tier has no ready pool, the other one serves
    TIER_QUIESCING = "tier_quiescing"  # every node of the session's tier registered anew and takes new sessions only
    SETTLED_NODES_ONLY = "settled_nodes_only"  # of its pool, since the session goes on and other nodes quiesce
    SPILLED_UNDER_LOAD = "spilled_under_load"
    WAITING_FOR_ROOM = "waiting_for_room"  # no pool that may serve it has room now
    WAIT_TOO_LONG = "wait_too_long"
    WOULD_WAIT_TOO_LONG = "would_wait_too_long"  # by how fast those before it go on
    QUEUE_FULL = "queue_full"
    SPOT_PREFERRED = "spot_preferred"  # by its QoS tier
    SPOT_EVICTED = "spot_evicted"  # its QoS tier prefers spot, and pressure, failure or want of room kept it away
    DEGRADED_UNDER_PRESSURE = "degraded_under_pressure"  # its output is capped
    FELL_BACK_UNDER_PRESSURE = "fell_back_under_pressure"  # another model serves it
    HELD_UNDER_PRESSURE = "held_under_pressure"  # it waits for the pressure to fall
    OVERLOADED = "overloaded"  # its QoS tier is turned away
    RATE_LIMITED = "rate_limited"  # its tenant has used up its requests or tokens of the last minute
    NEEDS_LONG_CONTEXT = "needs_long_context"
    EXCEEDS_EVERY_CONTEXT = "exceeds_every_context"  # the engine is left to refuse or to shorten
    NOT_CLASSIFIED = "not_classified"  # embeddings and unknown endpoints: by model alone
    NO_MODEL = "no_model"
    UNKNOWN_MODEL = "unknown_model"
    MODEL_NOT_ALLOWED = "model_not_allowed"  # to its tenant, who is told the same as of an unknown one
    UNAUTHENTICATED = "unauthenticated"  # by a key, a token or a trusted peer, where that is required
    NO_READY_NODE = "no_ready_node"
    BAD_REQUEST = "bad_request"
    BODY_TOO_LARGE = "body_too_large"
    NOT_READY = "not_ready"  # the filter has no routing table yet
    LISTED_MODELS = "listed_models"
    INTERNAL_ERROR = "internal_error"


class Refusal(Struct, frozen=True, gc=False):
    """An OpenAI-shaped error. `retry_after` is in seconds, None when a retry would not help."""

    status: int
    type: str
    code: str
    message: str
    param: str | None = None
    retry_after: float | None = None


class Contexts(Struct, frozen=True, gc=False):
    """The chosen pool's context, and the largest ones (tokens, 0 for none) of the ready pools that might have served:
    in smaller classes, but for the request's budget, and in larger ones."""

    chosen: int
    smaller: int = 0
    larger: int = 0


class Alternative(Struct, frozen=True, gc=False, cache_hash=True):
    """A pool that was looked at: `excluded_by` names the filter that took it out, else `scores` hold its marks.

    `overridden` as in Pool. Decisions share these, and each of them is looked up by them, so that their hash is kept.
    """

    pool: str
    excluded_by: str | None = None
    scores: tuple[tuple[str, float], ...] = ()
    total: float = 0.0
    overridden: tuple[str, ...] = ()


class WouldDo(Struct, frozen=True, gc=False):
    """What QoS governance would have done with a request, had it not been a dry run."""

    action: Action
    reasons: tuple[Reason, ...]
    pool: str = ""
    output_limit: int | None = None


class Decision(Struct, frozen=True, gc=False):
    """What is done with a request and every reason for it.

    `cluster` is Envoy's, of all or some of the pool's nodes. `waits_for` names the clusters that a request to be queued
    waits for, the best first; `waited_seconds` is how long one has waited that was. `qos_tier` is None where no tenant
    could be read. `pressure` is that of `pressed_pool`, by which its QoS tier was governed; None where it was not.
    `output_limit` is in tokens of each choice; `asked_model` is the canonical model that another one stands in
    for. A request to be queued that is held waits for at most `held_seconds` for the pressure to fall, without a claim
    on room. `shortlist` are the best of the alternatives, which are recorded. `known_by`, `features`, `choices` and
    `output_cap` are the request's, as in Ask; `features` is None where nothing was estimated.
    """

    action: Action
    endpoint: Endpoint
    model: str
    reasons: tuple[Reason, ...]
    pool: Pool | None = None
    cluster: str = ""
    sensitivity: Sensitivity | None = None
    budget: Budget | None = None
    alternatives: tuple[Alternative, ...] = ()
    shortlist: tuple[Alternative, ...] = ()
    would_change: tuple[str, ...] = ()
    pinned: FormatTier | None = None
    session: str | None = None
    tenant: str = ""
    known_by: str = ""
    qos_tier: QosTier | None = None
    stream: bool = False
    refusal: Refusal | None = None
    waits_for: tuple[str, ...] = ()
    waited_seconds: float = 0.0
    pressure: TierPressure | None = None
    pressed_pool: str = ""
    output_limit: int | None = None
    asked_model: str = ""
    held_seconds: float = 0.0
    would_do: WouldDo | None = None
    contexts: Contexts | None = None
    features: Features | None = None
    choices: int = 1
    output_cap: int | None = None

    @property
    def is_sent(self) -> bool:
        """Whether the request goes to its pool now."""
        return self.action in _SENT


_SENT = frozenset({Action.PASS, Action.DEGRADE, Action.FALLBACK})
