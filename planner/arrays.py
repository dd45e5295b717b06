"""Whether fleets can be planned and simulated: that needs NumPy and Numba, of the extra `planner`."""

from __future__ import annotations

from controlplane.errors import HeadraceError


class ArraysMissingError(HeadraceError):
    """NumPy or Numba is not installed."""


def check_arrays() -> None:
    """Raises ArraysMissingError."""
    try:
        import numba  # noqa: F401, PLC0415 - an extra, and slow to import
        import numpy  # noqa: F401, PLC0415
    except ImportError:
        raise ArraysMissingError(
            "planning needs NumPy and Numba; install them with: pip install 'headrace[planner]'"
        ) from None
