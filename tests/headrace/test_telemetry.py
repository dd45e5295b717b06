"""Logs, spans and metrics of a process."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client import Counter

from controlplane.config.settings import TelemetrySettings
from headrace.telemetry import metrics_port, new_metrics, telemetry


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


def test_metrics_are_served_where_they_should_be_and_no_longer_than_that() -> None:
    registry = new_metrics()
    Counter("headrace_test", "A test.", registry=registry).inc()
    with metrics_port("127.0.0.1:0", registry) as address:
        text = httpx.get(f"http://{address}/metrics", trust_env=False).text
        assert "headrace_test_total 1.0" in text
        assert "process_resident_memory_bytes" in text
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{address}/metrics", trust_env=False)


def test_a_metrics_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with (
            pytest.raises(OSError, match=f"cannot serve metrics on {address}: Address already in use"),
            metrics_port(address, new_metrics()),
        ):
            pass
