"""Finds out what a file of requests is by its first line, and reads one or more files of one kind as one workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controlplane.errors import ConfigurationError
from planner.workload import azure, burstgpt, ledger, mooncake
from planner.workload.building import build
from planner.workload.lines import Request
from planner.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class _Kind:
    """`mark` is in the first line of such a file, and of no other kind's."""

    source: str
    mark: str
    read: Callable[[str, str], Sequence[Request]]


_KINDS = (
    _Kind(azure.SOURCE, "ContextTokens", azure.read_azure),
    _Kind(burstgpt.SOURCE, "Request tokens", burstgpt.read_burstgpt),
    _Kind(mooncake.SOURCE, '"input_length"', mooncake.read_mooncake),
)
# A document of decisions has its keys on other lines.
_LEDGER = _Kind(ledger.SOURCE, "{", ledger.read_ledger)


def read_traces(texts: Sequence[tuple[str, str]]) -> Workload:
    """From pairs of a file's name and text. Their times are taken to be of one clock.

    Raises ConfigurationError for every line that cannot be read, and for files of unlike kinds.
    """
    kinds = [_kind_of(name, text) for name, text in texts]
    if len(set(kinds)) > 1:
        told = "; ".join(f"{name}: {kind.source}" for (name, _), kind in zip(texts, kinds, strict=True))
        raise ConfigurationError([f"files of one kind make one workload, and these are of several: {told}"])
    requests: list[Request] = []
    faults: list[str] = []
    for name, text in texts:
        try:
            requests += kinds[0].read(text, name)
        except ConfigurationError as error:
            faults += error.faults
    if faults:
        raise ConfigurationError(faults)
    return build(f"{kinds[0].source}: {', '.join(name for name, _ in texts)}", requests)


def _kind_of(name: str, text: str) -> _Kind:
    first = text[: text.find("\n")] if "\n" in text else text
    for kind in (*_KINDS, _LEDGER):
        if kind.mark in first:
            return kind
    raise ConfigurationError(
        [
            f"{name}:1: is no trace that can be read: CSV of Azure or BurstGPT, JSON lines of Mooncake, "
            "or what `headrace decisions --json` prints"
        ]
    )
