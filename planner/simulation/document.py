"""What a simulated fleet did as JSON, for scripts."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import Any

from planner.simulation.report import SimulationReport


def document(report: SimulationReport) -> dict[str, Any]:
    """The report's fields by their names. What there is no number for is null, as JSON has none but finite ones."""
    found: dict[str, Any] = _plain(asdict(report))
    return found


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case float() if not isfinite(value):
            return None
        case _:
            return value
