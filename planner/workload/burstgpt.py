"""BurstGPT: requests to ChatGPT and GPT-4 at a university, over months.

CSV with Timestamp (seconds), Model, Request tokens and Response tokens: https://github.com/HPMLL/BurstGPT, CC-BY 4.0;
cite Wang et al., arXiv 2401.17644. Later versions tell sessions. Requests that failed have no response tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.workload.lines import Request, moment, read_csv, whole_number

COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens")
SOURCE = "BurstGPT (CC-BY 4.0)"
_SESSION = "Session ID"


def read_burstgpt(text: str, name: str) -> Sequence[Request]:
    """By model as category. Requests without input or output are left out. Raises ConfigurationError."""
    return read_csv(text, name, COLUMNS, _read)


def _read(row: dict[str, str]) -> Request | None:
    prompt, answer = (whole_number(row[column], column) for column in COLUMNS[2:])
    seconds = moment(row["Timestamp"], "Timestamp", "seconds")
    if not prompt or not answer:
        return None
    return Request(seconds, prompt, answer, category=row["Model"], session=row.get(_SESSION, ""))
