"""A workload: the requests that a fleet is planned for, as arrays. How they were come by is not told here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int32]
Indices: TypeAlias = npt.NDArray[np.uint8]

NO_CAP = 0
NO_SESSION = -1


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """`n` requests in the order of their arrival. All arrays have the shape `(n,)` and are read-only.

    `source` says where they come from, with the licence. `output_tokens` is what the answer really has; `output_cap` is
    the client's `max_tokens`, NO_CAP without one, and never less than the answer.

    What the source does not tell is None: `category` indexes `category_names`; `qos_tier` and `verdict` are positions
    in `controlplane.model`'s `QosTier` and `Verdict`; requests of one `session` share a number, NO_SESSION is none.

    Raises ValueError for arrays of unlike lengths, times that go back, and tokens that cannot be.
    """

    source: str
    arrival_seconds: Floats
    input_tokens: Integers
    output_tokens: Integers
    output_cap: Integers
    category: Indices | None = None
    category_names: tuple[str, ...] = ()
    qos_tier: Indices | None = None
    verdict: Indices | None = None
    session: Integers | None = None

    def __post_init__(self) -> None:
        for array in self._arrays():
            if array.shape != self.arrival_seconds.shape:
                raise ValueError(f"arrays of {self.source} have shapes {array.shape} and {self.arrival_seconds.shape}")
            array.flags.writeable = False
        if len(self) and (np.diff(self.arrival_seconds) < 0).any():
            raise ValueError(f"arrivals of {self.source} are not in order")
        if (self.input_tokens < 1).any() or (self.output_tokens < 1).any():
            raise ValueError(f"requests of {self.source} need a token of input and of output at least")
        if ((self.output_cap != NO_CAP) & (self.output_cap < self.output_tokens)).any():
            raise ValueError(f"answers of {self.source} are longer than their caps")

    def __len__(self) -> int:
        return self.arrival_seconds.size

    @property
    def total_tokens(self) -> Integers:
        """What each request really fills of a context."""
        return self.input_tokens + self.output_tokens

    @property
    def seconds(self) -> float:
        """From the first arrival to the last."""
        return float(self.arrival_seconds[-1] - self.arrival_seconds[0]) if len(self) else 0.0

    @property
    def requests_per_second(self) -> float:
        """The mean rate of arrival, 0 of fewer than two requests."""
        return (len(self) - 1) / self.seconds if self.seconds else 0.0

    def budget_tokens(self, allowance: int) -> Integers:
        """What a router must leave room for that knows prompt and cap: `allowance` output tokens where none is."""
        return self.input_tokens + np.where(self.output_cap == NO_CAP, np.int32(allowance), self.output_cap)

    def select(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Workload:
        """The requests of a mask, or of ascending positions."""
        arrays: dict[str, Any] = {
            field.name: value[chosen]
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), np.ndarray)
        }
        return replace(self, **arrays)

    def _arrays(self) -> Sequence[npt.NDArray[np.generic]]:
        values = (getattr(self, field.name) for field in fields(self))
        return [value for value in values if isinstance(value, np.ndarray)]
