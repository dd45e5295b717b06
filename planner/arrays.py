"""Whether fleets can be planned: that needs NumPy, of the extra `planner`."""

from __future__ import annotations

from controlplane.errors import HeadraceError


class ArraysMissingError(HeadraceError):
    """NumPy is not installed."""


def check_arrays() -> None:
    """Raises ArraysMissingError."""
    try:
        import numpy  # noqa: F401, PLC0415 - an extra, and slow to import
    except ImportError:
        raise ArraysMissingError("planning needs NumPy; install it with: pip install 'headrace[planner]'") from None
