"""Whether pictures can be drawn: they need matplotlib, the extra `plots`."""

from __future__ import annotations

from controlplane.errors import HeadraceError


class PlotsMissingError(HeadraceError):
    """matplotlib is not installed."""


def check_plots() -> None:
    """Raises PlotsMissingError, before work that would end without its picture."""
    try:
        import matplotlib  # noqa: F401, PLC0415 - an extra, and slow to import
    except ImportError:
        raise PlotsMissingError("a picture needs matplotlib; install it with: pip install 'headrace[plots]'") from None
