"""What an evaluation finds with one request, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from controlplane.model import FormatTier
from planner.quality.asking import Mode
from planner.quality.judging import Judged
from planner.quality.pairs import Pair


class Versus(StrEnum):
    """Which answer is compared with the full tier's. Another one of the same tier shows how much of a difference is
    none of the format's: engines batch, and sampling has dice."""

    QUANTIZED = "quantized"
    FULL_AGAIN = "full_again"


class FailureKind(StrEnum):
    OTHER_TIER = "answered by the other tier"
    REFUSED = "refused"
    TIMED_OUT = "timed out"
    BROKEN_OFF = "broken off"
    UNREACHABLE = "the gateway could not be reached"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer to use. `detail` holds nothing of prompt or answer."""

    kind: FailureKind
    tier: FormatTier
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.tier}: {self.kind}{f' ({self.detail})' if self.detail else ''}"


@dataclass(frozen=True, slots=True)
class Comparison:
    mode: Mode
    versus: Versus
    pair: Pair


@dataclass(frozen=True, slots=True)
class Text:
    """An answer as it was given; `source` is the tier, or `full_again`."""

    mode: Mode
    repetition: int
    source: str
    text: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found with one request. `texts` is empty unless they are kept."""

    judged: Judged
    comparisons: tuple[Comparison, ...]
    failures: tuple[Failure, ...]
    texts: tuple[Text, ...] = ()

    @property
    def compared(self) -> bool:
        """Whether both tiers answered it at least once in the same mode."""
        return any(comparison.versus is Versus.QUANTIZED for comparison in self.comparisons)
