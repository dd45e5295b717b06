"""The traces of Microsoft Azure's LLM inference service, of 2023 and of 2024.

CSV with TIMESTAMP, ContextTokens and GeneratedTokens: https://github.com/Azure/AzurePublicDataset, CC-BY 4.0; cite
Patel et al., "Splitwise", ISCA 2024 (2023), and Stojkovic et al., "DynamoLLM", HPCA 2025 (2024).
`max_tokens` is not in them.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.workload.lines import Request, moment_of, read_csv, whole_number

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
SOURCE = "Azure LLM inference trace (CC-BY 4.0)"


def read_azure(text: str, name: str) -> Sequence[Request]:
    """Requests without input or output are left out. Raises ConfigurationError."""
    return read_csv(text, name, COLUMNS, _read)


def _read(row: dict[str, str]) -> Request | None:
    prompt, answer = (whole_number(row[column], column) for column in COLUMNS[1:])
    seconds = moment_of(row["TIMESTAMP"], "TIMESTAMP")
    return Request(seconds, prompt, answer) if prompt and answer else None
