"""What a control plane shows over HTTP, as JSON of the shapes that `headrace ... --json` prints: status and decisions.

It is for operators: with their token where there are any, else for whoever can be trusted to be one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping

from google.protobuf.message import Message

from controlplane.http_serving import JSON, Answer, Handler, Question, refusal
from controlplane.ledger.asking import UnreadableError, decisions_asked
from controlplane.ledger.decisions import Decisions, Listing
from controlplane.messages import as_fields
from controlplane.services.access import BearerTokens
from controlplane.services.fleet import DEFAULT_DECISIONS, query_of
from headrace_protos.headrace.v1 import decision_pb2, fleet_pb2

STATUS = "/status"
RECENT = "/decisions/recent"

MOST_DECISIONS = 1000  # some 5 MB of JSON
MOST_LISTINGS = 2  # at once


class Surface:
    """`clock` gives Unix seconds. `trusts_strangers` says that whoever reaches the port may see what operators may."""

    def __init__(
        self,
        decisions: Decisions,
        status_of: Callable[[], fleet_pb2.GetStatusResponse],
        tokens: BearerTokens,
        clock: Callable[[], float],
        *,
        trusts_strangers: bool,
    ) -> None:
        self._decisions = decisions
        self._status_of = status_of
        self._tokens = tokens
        self._clock = clock
        self._trusts_strangers = trusts_strangers
        self._listing = asyncio.Semaphore(MOST_LISTINGS)

    @property
    def routes(self) -> Mapping[str, Handler]:
        return {STATUS: self._status, RECENT: self._recent}

    async def _status(self, question: Question) -> Answer:
        return self._refused(question) or Answer(200, _json(self._status_of()), JSON)

    async def _recent(self, question: Question) -> Answer:
        if refused := self._refused(question):
            return refused
        words = dict(question.parameters)
        if len(words) < len(question.parameters):
            return refusal(400, "a parameter is given twice; give each once")
        try:
            request = decisions_asked(words, self._clock())
        except UnreadableError as error:
            return refusal(400, f"{error.name}: {error}")
        if request.limit > MOST_DECISIONS:
            return refusal(400, f"limit: at most {MOST_DECISIONS}; `headrace decisions` lists more")
        async with self._listing:
            listing = await self._decisions.newest(query_of(request), request.limit or DEFAULT_DECISIONS)
            unrecorded = await self._decisions.unrecorded(query_of(request))
            return Answer(200, await _listed(listing, unrecorded), JSON)

    def _refused(self, question: Question) -> Answer | None:
        if self._tokens.knows_operators:
            shown = question.headers.get("authorization", "")
            refused = self._tokens.refusal_of_operator(shown, question.path)
            return None if refused is None else refusal(401, refused, ("www-authenticate", "Bearer"))
        if self._trusts_strangers:
            return None
        return refusal(
            403,
            "other machines reach this port and no operator tokens are configured, so this is shown to nobody; "
            "name a file of them in control_plane.auth.operator_tokens_file, or listen on 127.0.0.1",
        )


def _json(message: Message) -> bytes:
    return json.dumps(as_fields(message), ensure_ascii=False, separators=(",", ":")).encode()


async def _listed(listing: Listing, unrecorded: fleet_pb2.Unrecorded | None) -> bytes:
    """As a ListDecisionsResponse. Lets heartbeats and access logs be taken while it is written."""
    decisions = []
    for found in listing.found:
        decisions.append(_json(decision_pb2.RecordedDecision.FromString(found.message)))
        await asyncio.sleep(0)
    trouble = json.dumps(listing.trouble).encode()
    short = b',"unrecorded":%b' % _json(unrecorded) if unrecorded is not None else b""
    return b'{"decisions":[%b],"ledger_trouble":%b%b}' % (b",".join(decisions), trouble, short)
