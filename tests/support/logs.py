"""What one part of the system has logged, without what gRPC logs of the loops of tests that have ended."""

from __future__ import annotations

import logging

import pytest


def logged(caplog: pytest.LogCaptureFixture, logger: str) -> list[logging.LogRecord]:
    """The records of a module's logger, and of those below it."""
    return [record for record in caplog.records if f"{record.name}.".startswith(f"{logger}.")]
