"""Logs, spans and metrics of a process."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Literal

import pytest

from controlplane.config.settings import TelemetrySettings
from headrace.telemetry import telemetry


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_lines_hold_one_object_each_with_fixed_fields(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("headrace.test")
    with telemetry(TelemetrySettings(log_format="json"), "controlplane"):
        log.info('several\nlines of "text" node=%s', "ü")
        try:
            raise ValueError("bad")  # noqa: TRY301
        except ValueError:
            log.exception("failed")
        log.debug("not shown")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert first.pop("time")[10] == "T"
    assert first == {
        "level": "info",
        "service": "controlplane",
        "logger": "headrace.test",
        "message": 'several\nlines of "text" node=ü',
    }
    assert second["level"] == "error"
    assert second["exception"].endswith("ValueError: bad")


def test_text_lines_name_the_service(capsys: pytest.CaptureFixture[str]) -> None:
    with telemetry(TelemetrySettings(log_level="warning"), "node"):
        logging.getLogger("a.b").warning("beware")
        logging.getLogger("a.b").info("not shown")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(" WARNING node a.b: beware")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_fields_of_a_structured_line_are_json_in_one_line_whatever_they_hold(
    log_format: Literal["text", "json"], capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "a\n\x1b[31m\x9b\u2028\x85ü"
    with telemetry(TelemetrySettings(log_format=log_format), "controlplane"):
        logging.getLogger("a.b").info("decision", extra={"fields": {"decision": {"model": hostile}}})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isascii()
    assert line.isprintable()
    if log_format == "json":
        assert json.loads(line)["decision"] == {"model": hostile}
        assert json.loads(line)["message"] == "decision"
    else:
        start, _, fields = line.partition(" a.b: decision ")
        assert start.endswith("INFO controlplane")
        assert json.loads(fields) == {"decision": {"model": hostile}}


def test_a_collector_that_is_away_keeps_no_process_from_ending() -> None:
    script = """
import time
from opentelemetry import trace
from controlplane.config.settings import TelemetrySettings
from headrace.telemetry import telemetry

with telemetry(TelemetrySettings(otlp_endpoint="http://127.0.0.1:1"), "test"):
    with trace.get_tracer("test").start_as_current_span("span"):
        pass
    ending = time.monotonic()
print(time.monotonic() - ending)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert float(done.stdout) < 4
