"""The secrets that the filter holds: what API keys are checked with, and what engines are shown in their place."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Keys:
    """`secret` is that of the digests of API keys; without it none can be checked. `engine_key` is what engines want to
    see; without it they see what clients show them, but for API keys."""

    secret: bytes | None = field(default=None, repr=False)
    engine_key: str | None = field(default=None, repr=False)

    @property
    def shown_to_engines(self) -> tuple[tuple[str, str], ...]:
        """Request headers."""
        return (("authorization", f"Bearer {self.engine_key}"),) if self.engine_key is not None else ()


NO_KEYS = Keys()
