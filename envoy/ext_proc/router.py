"""What happens with one whole request: parse, look up its session, decide, wait for room, remember the session, answer.

Never raises: a fault of our own is a 500 with a reason, logged without any part of the request. What the answer carries
is bounded, whatever the request says and however many pools there are.
"""

from __future__ import annotations

import json
import logging
import math
import time
import traceback
from binascii import b2a_base64
from collections.abc import Callable
from typing import Protocol

from msgspec import structs
from opentelemetry import trace
from opentelemetry.util.types import AttributeValue

from controlplane.decision_bytes import decision_bytes
from controlplane.model import Action, Ask, Decision, HttpRequest, Pin, QosTier, Reason, Refusal
from controlplane.policy.access import Identity, identify
from controlplane.policy.ask import endpoint_of, model_in, parse
from controlplane.policy.decide import decide, not_served, refused
from controlplane.policy.govern import retry_after
from controlplane.policy.pins import pin_key, pin_of
from controlplane.policy.qos import Mode
from controlplane.policy.refusals import unknown_model
from controlplane.policy.settings import Policy
from controlplane.policy.table import RoutingTable
from ext_proc import names
from ext_proc.answer import JSON, Answer, Reply, Route, error_body
from ext_proc.exchange import TooLarge
from ext_proc.keys import Keys
from ext_proc.limits import NO_BILL, Bill, RateLimits
from ext_proc.pins import PinStore
from ext_proc.rewrite import MOST_MEMBERS, TooManyMembersError
from ext_proc.shaping import degraded_to, shaped_body
from ext_proc.turns import Claim
from ext_proc.waiting import Extend, Line, Place

_log = logging.getLogger(__name__)
_tracer = trace.get_tracer(__name__)

_NOT_READY = Refusal(
    503, "server_error", "not_ready", "The router has no routing table yet; try again shortly.", retry_after=1.0
)
_INTERNAL_ERROR = Refusal(
    500, "server_error", "internal_error", "The router failed to decide about this request; this is a fault of its own."
)
_TOO_MANY_MEMBERS = Refusal(
    400, "invalid_request_error", "invalid_json", f"The request body has more than {MOST_MEMBERS} members; send fewer."
)


class Observer(Protocol):
    """Told of each decision, for metrics."""

    def decided(self, decision: Decision, seconds: float) -> None: ...


class Router:
    """Answers requests by the table in force. `table` returns None until the first one has arrived; `dice` gives
    numbers in [0, 1), for the jitter of when to come back. Requests are traced where a provider for that has been set
    before."""

    def __init__(
        self,
        table: Callable[[], RoutingTable | None],
        pins: PinStore,
        line: Line,
        observer: Observer,
        dice: Callable[[], float],
        *,
        rates: RateLimits,
        keys: Keys,
    ) -> None:
        self._table = table
        self._pins = pins
        self._line = line
        self._observer = observer
        self._dice = dice
        self._rates = rates
        self._keys = keys
        self._is_traced = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

    async def answer(self, request: HttpRequest | TooLarge, extend: Extend) -> Answer:
        """`extend` is called where the answer takes longer than usual."""
        started = time.perf_counter()
        if self._is_traced:
            decision, answer = await self._answer_traced(request, extend)
        else:
            decision, answer = await self._answer(request, extend)
        self._observer.decided(decision, max(time.perf_counter() - started - decision.waited_seconds, 0.0))
        return answer

    async def _answer_traced(self, request: HttpRequest | TooLarge, extend: Extend) -> tuple[Decision, Answer]:
        span = _tracer.start_span("headrace.decide")
        if not span.is_recording():  # to make it the current one costs more than some decisions
            return await self._answer(request, extend)
        with trace.use_span(span, end_on_exit=True):
            decision, answer = await self._answer(request, extend)
            span.set_attributes(_span_attributes(decision))
            return decision, answer

    async def _answer(self, request: HttpRequest | TooLarge, extend: Extend) -> tuple[Decision, Answer]:
        try:
            table = self._table()
            if table is None:
                return _refusal(request, _NOT_READY, Reason.NOT_READY)
            headers = request.head.headers if isinstance(request, TooLarge) else request.headers
            identity = identify(headers, table, self._keys.secret)
            if isinstance(identity, Refusal):
                return _refusal(request, identity, Reason.UNAUTHENTICATED)
            return await self._answer_known(request, identity, table, extend)
        except Exception as error:
            _log.error("internal error while deciding error=%s at=%s", type(error).__name__, _place(error))
            return _refusal(request, _INTERNAL_ERROR, Reason.INTERNAL_ERROR)

    async def _answer_known(
        self, request: HttpRequest | TooLarge, identity: Identity, table: RoutingTable, extend: Extend
    ) -> tuple[Decision, Answer]:
        if isinstance(request, TooLarge):
            return _refusal(request, _too_large(request.limit), Reason.BODY_TOO_LARGE)
        ask = parse(request, table.policy, identity.tenant, identity.known_by)
        if isinstance(ask, Refusal):
            return _refusal(request, ask, Reason.BAD_REQUEST)
        decision, bill = await self._decide(ask, table, extend)
        if decision.action is Action.ANSWER:
            return decision, _tell_models(decision, table, identity.tenant, model_in(request.path))
        if decision.refusal is not None or decision.pool is None:
            return decision, _refuse(decision, decision.refusal or _INTERNAL_ERROR, bill)
        try:
            body = shaped_body(request.body, ask, decision, table.policy.qos)
        except TooManyMembersError:
            self._rates.give_back(bill)
            return _refusal(request, _TOO_MANY_MEMBERS, Reason.BAD_REQUEST)
        metadata = _metadata(decision, debug=ask.debug, bill=bill)
        return decision, Route(decision.cluster, metadata, body, identity.taken_off, self._keys.shown_to_engines)

    async def _decide(self, ask: Ask, table: RoutingTable, extend: Extend) -> tuple[Decision, Bill]:
        """Decides as often as it has to wait for room, each time by the table and the pin of that moment.

        It is charged before it waits: who is beyond his rates takes nobody's place.
        """
        bill = NO_BILL
        with self._line.place() as place:
            decision = await self._decide_now(ask, table, place)
            if table.is_rated(ask.tenant) and (decision.is_sent or decision.action is Action.QUEUE):
                decision, bill = await self._rates.charge(decision, table)
                if decision.refusal is not None:
                    place.give_back()
            if decision.action is Action.QUEUE:
                try:
                    decision = await self._wait(decision, ask, table, extend, place)
                except BaseException:
                    self._rates.give_back(bill)
                    raise
                if decision.refusal is not None:
                    self._rates.give_back(bill)
                    bill = NO_BILL
        return decision, bill

    async def _wait(self, decision: Decision, ask: Ask, table: RoutingTable, extend: Extend, place: Place) -> Decision:
        while decision.action is Action.QUEUE:
            claim = _claim(decision)
            refused_for = await place.wait(decision.waits_for, extend, claim, held_seconds=decision.held_seconds)
            table = self._table() or table
            if refused_for is not None:
                return not_served(decision, refused_for, place.waited_seconds, self._retry_after(table.policy, claim))
            decision = await self._decide_now(ask, table, place)
        return structs.replace(decision, waited_seconds=place.waited_seconds)

    async def _decide_now(self, ask: Ask, table: RoutingTable, place: Place) -> Decision:
        """A session's first decision pins it; of filters that race, all obey the first."""
        key = pin_key(ask, table)
        draw = self._dice()
        if key is None:
            return _decided(ask, table, None, place, draw)
        pin = await self._pins.get(key)
        decision = _decided(ask, table, pin, place, draw)
        due = pin_of(decision, table)
        if due is None or (pin is not None and pin.tier is due.tier):
            return decision
        if pin is not None:
            await self._pins.replace(key, due)
            return decision
        winner = await self._pins.set_first(key, due)
        return decision if winner.tier is due.tier else _decided(ask, table, winner, place, draw)

    def _retry_after(self, policy: Policy, claim: Claim) -> float:
        if policy.qos.mode is Mode.ENABLED:
            return retry_after(policy.qos, claim.tier, self._dice())
        return policy.selection.retry_after_seconds


def _claim(decision: Decision) -> Claim:
    tokens = decision.budget.total if decision.budget is not None else 1
    return Claim(decision.qos_tier or QosTier.STANDARD, decision.tenant, tokens)


def _decided(ask: Ask, table: RoutingTable, pin: Pin | None, place: Place, draw: float) -> Decision:
    """The decision; with it the place holds the credit that it needs."""
    decision = decide(ask, table, pin, place.free, waited_seconds=place.patience_seconds, draw=draw)
    if decision.is_sent:
        place.hold(decision.cluster)
    else:
        place.give_back()
    return decision


def _place(error: BaseException) -> str:
    """Where an error arose. Its message is left out: it may quote the request."""
    return " < ".join(f"{f.name}:{f.lineno}" for f in reversed(traceback.extract_tb(error.__traceback__)))


def _refusal(request: HttpRequest | TooLarge, refusal: Refusal, reason: Reason) -> tuple[Decision, Reply]:
    """The refusal of a request that was not read."""
    head = request.head if isinstance(request, TooLarge) else request
    decision = refused(refusal, reason, endpoint=endpoint_of(head.method, head.path))
    return decision, _refuse(decision, refusal)


def _refuse(decision: Decision, refusal: Refusal, bill: Bill = NO_BILL) -> Reply:
    headers = [*JSON, (names.RESPONSE_REASON, refusal.code)]
    if decision.pressure is not None:
        headers.append((names.RESPONSE_ACTION, decision.action))
    headers += [(names.RATE_PREFIX + name, value) for name, value in bill.told.items()]
    if refusal.retry_after is not None:
        headers.append(("retry-after", str(max(1, math.ceil(refusal.retry_after)))))
    if refusal.status == 401:  # https://www.rfc-editor.org/rfc/rfc6750#section-3
        headers.append(("www-authenticate", 'Bearer realm="headrace"'))
    return Reply(
        status=refusal.status,
        headers=tuple(headers),
        body=error_body(refusal, decision.endpoint),
        metadata=_metadata(decision, debug=False),
        details=f"headrace_{refusal.code}",
    )


def _tell_models(decision: Decision, table: RoutingTable, tenant: str, name: str | None) -> Reply:
    """As OpenAI lists models, or tells of one by any of its names. https://platform.openai.com/docs/api-reference/models"""
    models = table.models_of(tenant)
    if name is not None and not table.pools_of(name, tenant):
        return _refuse(decision, unknown_model(name, models))
    told = [
        {"id": model, "object": "model", "created": 0, "owned_by": "headrace"}
        for model in (models if name is None else (name,))
    ]
    return Reply(
        status=200,
        headers=JSON,
        body=json.dumps({"object": "list", "data": told} if name is None else told[0]).encode(),
        metadata=_metadata(decision, debug=False),
        details="headrace_listed_models",
    )


def _too_large(limit: int) -> Refusal:
    return Refusal(
        413,
        "invalid_request_error",
        "body_too_large",
        f"The request body exceeds the gateway's limit of {limit} bytes; send less, or raise gateway.max_body_bytes.",
    )


def _metadata(decision: Decision, *, debug: bool, bill: Bill = NO_BILL) -> dict[str, str]:
    """What response headers and the access log read."""
    metadata = {
        names.KEY_DECISION: b2a_base64(decision_bytes(decision), newline=False).decode(),
    }
    if bill is not NO_BILL:
        metadata |= {names.KEY_RATE_PREFIX + name: value for name, value in bill.told.items()}
        if bill.note:
            metadata[names.KEY_BILL] = bill.note
    if decision.pool is not None:
        metadata[names.KEY_POOL] = decision.pool.name
        metadata[names.KEY_FORMAT] = decision.pool.tier
    if decision.sensitivity is not None:
        metadata[names.KEY_VERDICT] = decision.sensitivity.verdict
    if less := degraded_to(decision):
        metadata[names.KEY_ACTION] = decision.action
        metadata[names.KEY_DEGRADED_TO] = less
    if debug:
        metadata[names.KEY_DEBUG] = _summary(decision)
    return metadata


def _summary(decision: Decision) -> str:
    """The decision in one line of JSON, for a response header."""
    summary: dict[str, object] = {"reasons": decision.reasons, "pinned": decision.pinned}
    if decision.sensitivity is not None:
        summary["score"] = round(decision.sensitivity.score, 2)
        summary["contributions"] = {c.name: round(c.points, 2) for c in decision.sensitivity.contributions}
    if decision.budget is not None:
        summary["prompt_tokens"] = decision.budget.prompt_tokens
        summary["output_tokens"] = decision.budget.output_tokens
        summary["category"] = decision.budget.category
        summary["likely_prompt_tokens"] = decision.budget.likely_prompt_tokens
        summary["rests_on"] = decision.budget.rests_on
        summary["samples"] = decision.budget.samples
    if decision.pressure is not None:
        summary["pressure"] = decision.pressure.pressure.name.lower()
    if decision.waited_seconds:
        summary["waited_seconds"] = round(decision.waited_seconds, 3)
    return json.dumps(summary, separators=(",", ":"))


def _span_attributes(decision: Decision) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "headrace.action": decision.action,
        "headrace.reasons": decision.reasons,
        "gen_ai.operation.name": decision.endpoint,
    }
    if decision.pool is not None:
        attributes["gen_ai.request.model"] = decision.model
        attributes["headrace.pool"] = decision.pool.name
    if decision.sensitivity is not None:
        attributes["headrace.verdict"] = decision.sensitivity.verdict
    if decision.budget is not None:
        attributes["headrace.budget.tokens"] = decision.budget.total
    if decision.qos_tier is not None:
        attributes["headrace.qos_tier"] = decision.qos_tier
    if decision.waited_seconds:
        attributes["headrace.waited_seconds"] = decision.waited_seconds
    return attributes
