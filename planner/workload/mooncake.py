"""Mooncake's traces of Kimi, Moonshot AI's service.

JSON lines with timestamp (milliseconds), input_length and output_length:
https://github.com/kvcache-ai/Mooncake, Apache-2.0; cite Qin et al., "Mooncake", FAST 2025. Their hash_ids tell what
prefixes are shared, which is not read here: the planner's engines cache no prefixes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.workload.lines import LineError, Request, moment, read_json_lines, whole_number

SOURCE = "Mooncake trace (Apache-2.0)"


def read_mooncake(text: str, name: str) -> Sequence[Request]:
    """Requests without input or output are left out. Raises ConfigurationError."""
    return read_json_lines(text, name, _read)


def _read(row: Mapping[str, Any]) -> Request | None:
    if missing := [key for key in ("timestamp", "input_length", "output_length") if key not in row]:
        raise LineError(f"has no {', '.join(missing)}")
    prompt, answer = (whole_number(str(row[key]), key) for key in ("input_length", "output_length"))
    milliseconds = moment(row["timestamp"], "timestamp", "milliseconds")
    return Request(milliseconds / 1000, prompt, answer) if prompt and answer else None
