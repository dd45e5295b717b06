"""Logging, tracing and the metrics of one process. No prompt and no secret is ever logged; nothing here could."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from prometheus_client import CollectorRegistry
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from controlplane.config.settings import TelemetrySettings

# For one batch with all its retries: a collector that is away must not keep a process from ending.
EXPORT_SECONDS = 2.0


class _JsonFormatter(logging.Formatter):
    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)  # all in ASCII: other characters may end a line, or steer a terminal


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        return f"{super().format(record)} {json.dumps(fields)}" if fields else super().format(record)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What a structured line has besides its message, given as `extra={"fields": ...}`."""
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields


@contextmanager
def telemetry(settings: TelemetrySettings, service: str) -> Iterator[None]:
    """Logs go to standard error, spans to the collector if one is configured, the last of them at the end."""
    handler = logging.StreamHandler(sys.stderr)
    if settings.log_format == "json":
        handler.setFormatter(_JsonFormatter(service))
    else:
        handler.setFormatter(_TextFormatter(f"%(asctime)s %(levelname)s {service} %(name)s: %(message)s"))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if settings.otlp_endpoint is None:
        yield
        return
    provider = TracerProvider(resource=Resource.create({"service.name": f"headrace-{service}"}))
    insecure = settings.otlp_endpoint.startswith("http://")
    exporter = OTLPSpanExporter(settings.otlp_endpoint, insecure=insecure, timeout=EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()


def new_metrics() -> CollectorRegistry:
    """A registry with the process's own metrics."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry
