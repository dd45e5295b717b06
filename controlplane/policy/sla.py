"""What each QoS tier is promised, and whether a request that has ended got it.

Pure. Failures of ours violate, the client's own errors do not count, and requests that were turned away are neither met
nor violated: else shedding load would look like breaking promises, or like keeping them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec
from annotated_types import Ge, Gt, Le

from controlplane.model import Endpoint, QosTier

Milliseconds = Annotated[float, Gt(0), Le(86_400_000)]


@dataclass(frozen=True, slots=True)
class SlaTarget:
    """Times that a tier's requests must keep, in milliseconds from the end of the request; None promises nothing.

    `first_token_ms` is judged where the answer is streamed; where it is not, nobody sees a first token. A whole answer
    may take `first_token_ms` and `output_token_ms` for each of its tokens, and `whole_ms` in any case. Without any
    target, only failures violate.
    """

    first_token_ms: Milliseconds | None = None
    output_token_ms: Milliseconds | None = None
    whole_ms: Milliseconds | None = None


@dataclass(frozen=True, slots=True)
class SlaRules:
    """The targets, and how the rate of violations is measured.

    It is the share of violations among the requests that ended within `window_seconds` and count. It is missing, which
    is not the same as 0, with fewer than `minimum_requests` of them, and when the last one is older than
    `stale_seconds`.
    """

    # A better tier is promised more. 2000 ms to the first token is what MLPerf Inference demands of its chat servers,
    # with 100 to 200 ms per token, about as fast as people read; a lower tier waits in line first, the lowest for as
    # long as a request may wait by default.
    guaranteed: SlaTarget = SlaTarget(first_token_ms=2000.0, output_token_ms=100.0)
    standard: SlaTarget = SlaTarget(first_token_ms=5000.0, output_token_ms=200.0)
    best_effort: SlaTarget = SlaTarget(first_token_ms=30_000.0, output_token_ms=500.0)
    window_seconds: Annotated[float, Ge(1), Le(3600)] = 30.0
    minimum_requests: Annotated[int, Ge(1)] = 20
    stale_seconds: Annotated[float, Gt(0)] = 10.0

    def of(self, tier: QosTier) -> SlaTarget:
        match tier:
            case QosTier.GUARANTEED:
                return self.guaranteed
            case QosTier.STANDARD:
                return self.standard
            case QosTier.BEST_EFFORT:
                return self.best_effort


class Judgement(StrEnum):
    MET = "met"
    VIOLATED = "violated"
    REJECTED = "rejected"
    NOT_COUNTED = "not_counted"


class Cause(StrEnum):
    """Why a request violated its target, or does not count. Closed, so that it can be a metric label."""

    NONE = ""
    # violated
    FIRST_TOKEN = "first_token"  # noqa: S105 - a time, no password
    OUTPUT_TOKENS = "output_tokens"
    WHOLE = "whole"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    # not counted
    CLIENT_ERROR = "client_error"
    CLIENT_LEFT = "client_left"
    NOT_GENERATED = "not_generated"  # answered by Headrace, or of an API that does not generate text
    NOT_MEASURED = "not_measured"  # its engine told nothing that the targets are about


class Judged(msgspec.Struct, frozen=True, gc=False):
    judgement: Judgement
    cause: Cause = Cause.NONE


class Finished(msgspec.Struct, frozen=True, gc=False):
    """A request that has ended. `status` is what the client got, 0 for none; `refused` by Headrace, not by an engine.

    Times are in seconds from the end of the request: `first_token_seconds` until the answer's first byte of content,
    None when there was none; `whole_seconds` until its last, or until it was given up. `cut_short` is an answer that
    ended before it was whole, and not by the client's leaving.
    """

    endpoint: Endpoint
    status: int
    whole_seconds: float
    first_token_seconds: float | None = None
    output_tokens: int | None = None
    stream: bool = False
    refused: bool = False
    client_left: bool = False
    timed_out: bool = False
    cut_short: bool = False


GENERATING = frozenset({Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.RESPONSES, Endpoint.MESSAGES})

_PROMISES_NOTHING = SlaTarget()
_MET = Judged(Judgement.MET)
_REJECTED = Judged(Judgement.REJECTED)
_NOT_GENERATED = Judged(Judgement.NOT_COUNTED, Cause.NOT_GENERATED)


def judge(request: Finished, target: SlaTarget) -> Judged:
    if request.endpoint not in GENERATING:
        return _NOT_GENERATED
    if request.refused and request.status == 429:
        return _REJECTED
    if failure := _failure(request):
        return Judged(Judgement.VIOLATED, failure)
    measured = tuple(_measured(request, target))
    if broken := _broken(measured):
        return Judged(Judgement.VIOLATED, broken)
    if uncounted := _uncounted(request, target, is_measured=bool(measured)):
        return Judged(Judgement.NOT_COUNTED, uncounted)
    return _MET


def _failure(request: Finished) -> Cause:
    """Ours or an engine's. An engine's own 429 is no fault of the client's: it was led to where there was no room."""
    if request.client_left:
        return Cause.NONE
    if request.timed_out or request.status == 504:
        return Cause.TIMED_OUT
    if request.cut_short or request.status >= 500 or request.status == 429:
        return Cause.FAILED
    return Cause.NONE


def _uncounted(request: Finished, target: SlaTarget, *, is_measured: bool) -> Cause:
    """Who leaves before the time is up says nothing; who leaves later has waited for longer than promised."""
    if request.client_left:
        return Cause.CLIENT_LEFT
    if request.status >= 400:
        return Cause.CLIENT_ERROR
    if not is_measured and target != _PROMISES_NOTHING:
        return Cause.NOT_MEASURED
    return Cause.NONE


_Measured: TypeAlias = tuple[Cause, float, float]


def _broken(measured: Iterable[_Measured]) -> Cause:
    for cause, took, allowed in measured:
        if took > allowed / 1000:
            return cause
    return Cause.NONE


def _measured(request: Finished, target: SlaTarget) -> Iterator[_Measured]:
    """What is known of the request that there is a target for: the seconds that it took, the milliseconds allowed."""
    if request.status >= 400:
        return
    first = request.first_token_seconds
    if first is None and request.client_left:
        first = request.whole_seconds  # it did not come until then
    if target.first_token_ms is not None and request.stream and first is not None:
        yield Cause.FIRST_TOKEN, first, target.first_token_ms
    if target.output_token_ms is not None and request.output_tokens is not None:
        allowed = (target.first_token_ms or 0.0) + target.output_token_ms * request.output_tokens
        yield Cause.OUTPUT_TOKENS, request.whole_seconds, allowed
    if target.whole_ms is not None:
        yield Cause.WHOLE, request.whole_seconds, target.whole_ms
