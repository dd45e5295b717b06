"""Which node session was in force at an address at some time, so that what it served is accounted to it.

In memory, since this control plane began: of what was before it knows the sessions that it found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from controlplane.model import NodeSession

# Of one address. A node that registers so often is forgotten faster.
MOST_TERMS = 64


@dataclass(slots=True)
class _Terms:
    """The sessions at one address, in their order; `seen_at` is when it last had one."""

    sessions: deque[NodeSession] = field(default_factory=lambda: deque(maxlen=MOST_TERMS))
    seen_at: float = 0.0


class SessionHistory:
    """`keep_seconds` is for how long after its end a session may still serve what it was sent. Times are in Unix
    seconds."""

    def __init__(self, keep_seconds: float) -> None:
        self._keep_seconds = keep_seconds
        self._addresses: dict[str, _Terms] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def observe(self, sessions: Iterable[NodeSession], now: float) -> None:
        """Takes the sessions that are in force now."""
        for session in sessions:
            terms = self._addresses.setdefault(session.spec.address, _Terms())
            terms.seen_at = now
            if not terms.sessions or terms.sessions[-1].session_id != session.session_id:
                terms.sessions.append(session)
                self._forget_older(terms, now)
        oldest = now - self._keep_seconds
        for address in [address for address, terms in self._addresses.items() if terms.seen_at < oldest]:
            del self._addresses[address]

    def at(self, address: str, when: float) -> NodeSession | None:
        """The session that was in force then; None when that is not known."""
        terms = self._addresses.get(address)
        if terms is None:
            return None
        return next((s for s in reversed(terms.sessions) if s.registered_at <= when), None)

    def _forget_older(self, terms: _Terms, now: float) -> None:
        """Those whose successor came so long ago that nothing of theirs can run any more."""
        while len(terms.sessions) > 1 and terms.sessions[1].registered_at < now - self._keep_seconds:
            terms.sessions.popleft()
