"""The columns that filters look at, as both kinds of database keep them: in whole numbers only.

For a text that recurs (a model, a tenant, the reasons together) stands a code that the database gives it; for an id,
which hardly recurs, a hash, so that what it finds has to be compared with the decision itself. Rows stay so narrow that
a million of them are looked through in a fraction of a second, whatever is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from controlplane.ledger.query import DecisionQuery
from controlplane.ledger.row import Row

CODED = ("model", "pool", "tier", "tenant", "verdict")
_JUDGED = "misroute:"
_REMEMBERED = 1024
ERRORS = "(status = 0 OR status >= 400)"


class Term(NamedTuple):
    """One comparison of a column with a value, or with several of which one must be equal."""

    column: str
    operator: str
    value: int | list[int]


def texts_of(row: Row) -> tuple[str, ...]:
    """The texts of a row that get codes: those of CODED, and the reasons together, with what was judged."""
    return row.model, row.pool, row.tier, row.tenant, row.verdict, _together(row.reasons, row.misroute)


@lru_cache(_REMEMBERED)
def _together(reasons: tuple[str, ...], misroute: str) -> str:
    judged = (f"{_JUDGED}{misroute}",) if misroute else ()
    return f" {' '.join((*reasons, *judged))} "


def columns_of(row: Row, codes: Iterable[int]) -> tuple[int, ...]:
    """What stands after `recorded`: recorder, status, the codes of its texts, session and request."""
    return row.recorder, row.status, *codes, hash_of(row.session), hash_of(row.request_id)


def asked_reasons(query: DecisionQuery) -> list[str]:
    """All that the text of a row's reasons must hold; no reason has a blank."""
    words = [query.reason] if query.reason else []
    if query.misroute:
        words.append(f"{_JUDGED}{query.misroute}")
    return [f" {word} " for word in words]


def terms_of(query: DecisionQuery, codes: Mapping[str, int], reasons: Sequence[int]) -> list[Term] | None:
    """All that must hold, but for `errors_only`; None when nothing can match.

    `codes` are of the texts that are asked for, `reasons` those of all texts that hold `asked_reasons`.
    """
    terms: list[Term] = []
    for column in CODED:
        if text := getattr(query, column):
            if text not in codes:
                return None
            terms.append(Term(column, "=", codes[text]))
    if query.reason or query.misroute:
        if not reasons:
            return None
        terms.append(Term("reasons", "in", list(reasons)))
    for column, operator, value in (
        ("session", "=", hash_of(query.session)),
        ("request", "=", hash_of(query.request_id)),
        ("status", ">=", min(query.status_from, 1000)),
        ("status", "<=", min(query.status_to, 1000)),
    ):
        if value:
            terms.append(Term(column, operator, value))
    if query.since is not None:
        terms.append(Term("recorded", ">=", query.since))
    if query.until is not None:
        terms.append(Term("recorded", "<", query.until))
    return terms


def hash_of(text: str) -> int:
    """A signed whole number of 64 bits; 0 for no text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True) if text else 0
