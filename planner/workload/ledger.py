"""Our own ledger: what `headrace decisions --json -n 100000` prints, or `headrace decisions --follow --json` as lines.

Requests that were answered, with the engine's own counts of tokens. Prompts are not in the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.errors import ConfigurationError
from planner.workload.lines import MOST_TOKENS, Faults, LineError, Request, moment_of, read_json_lines, whole_number

SOURCE = "our own decisions"


def read_ledger(text: str, name: str) -> Sequence[Request]:
    """By what their text consists of as category. Raises ConfigurationError."""
    whole = _whole(text)
    if whole is None:
        return read_json_lines(text, name, _read)
    found, faults = [], Faults(name)
    for number, recorded in enumerate(whole, start=1):
        try:
            request = _read(recorded)
        except ValueError as error:
            faults.add(number, f"decision {number} {error}")
            continue
        if request is not None:
            found.append(request)
    faults.check()
    if not found:
        raise ConfigurationError([f"{name}: has no answered request whose engine told its tokens"])
    return found


def _whole(text: str) -> Sequence[Any] | None:
    """The decisions of one JSON document; None when it is none, but lines."""
    try:
        document = json.loads(text)
    except ValueError:
        return None
    decisions = document.get("decisions") if isinstance(document, dict) else None
    return decisions if isinstance(decisions, list) else None


def _read(recorded: Any) -> Request | None:
    time, outcome = (recorded.get(key) for key in ("time", "outcome")) if isinstance(recorded, dict) else (None, None)
    if not isinstance(time, str) or not isinstance(outcome, dict):
        raise LineError("is no recorded decision: it needs time and outcome")
    decision = _part(recorded, "decision")
    prompt, answer = (_count(outcome, key) for key in ("prompt_tokens", "completion_tokens"))
    if not prompt or not answer or outcome.get("status") != 200:
        return None
    # Several choices have a cap each; the answer counts them together.
    # Clients may ask for any number.
    asked = whole_number(str(decision.get("output_cap") or 0), "output_cap", most=2**64)
    cap = asked * max(_count(decision, "choices"), 1)
    return Request(
        seconds=moment_of(time, "time"),
        input_tokens=prompt,
        output_tokens=answer,
        output_cap=min(max(cap, answer), MOST_TOKENS) if cap else 0,
        category=str(_part(decision, "budget").get("category", "")),
        session=str(decision.get("session", "")),
        verdict=str(_part(decision, "sensitivity").get("verdict", "")),
        qos_tier=str(decision.get("qos_tier", "")),
    )


def _part(fields: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Empty where it is missing."""
    found = fields.get(key)
    return found if isinstance(found, dict) else {}


def _count(fields: Mapping[str, Any], key: str) -> int:
    return whole_number(str(fields.get(key) or 0), key)
