"""Our own ledger: what `headrace decisions --json -n 100000` prints, or `headrace decisions --follow --json` as lines.

Requests that were answered, with the engine's own counts of tokens. Prompts are not in the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from controlplane.errors import ConfigurationError
from planner.workload.lines import Faults, LineError, Request, read_json_lines, whole_number

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


def _whole(text: str) -> Sequence[Mapping[str, Any]] | None:
    """The decisions of one JSON document; None when it is none, but lines."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        return None
    decisions = document.get("decisions") if isinstance(document, dict) else None
    return decisions if isinstance(decisions, list) else None


def _read(recorded: Mapping[str, Any]) -> Request | None:
    outcome, decision = recorded.get("outcome"), recorded.get("decision")
    if not isinstance(outcome, dict) or not isinstance(recorded.get("time"), str):
        raise LineError("is no recorded decision: it needs time and outcome")
    decision = decision if isinstance(decision, dict) else {}
    prompt, answer = (_count(outcome, key) for key in ("prompt_tokens", "completion_tokens"))
    if not prompt or not answer or outcome.get("status") != 200:
        return None
    # Several choices have a cap each; the answer counts them together.
    cap = _count(decision, "output_cap") * max(_count(decision, "choices"), 1)
    return Request(
        seconds=datetime.fromisoformat(recorded["time"]).timestamp(),
        input_tokens=prompt,
        output_tokens=answer,
        output_cap=max(cap, answer) if cap else 0,
        category=str((decision.get("budget") or {}).get("category", "")),
        session=str(decision.get("session", "")),
        verdict=str((decision.get("sensitivity") or {}).get("verdict", "")),
        qos_tier=str(decision.get("qos_tier", "")),
    )


def _count(fields: Mapping[str, Any], key: str) -> int:
    return whole_number(str(fields.get(key) or 0), key)
