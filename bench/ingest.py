"""What a request costs a control plane after it has ended, by its parts: from Envoy's access log to the ledger on disk.

    python bench/ingest.py [--entries 2000]

CPU time, the least of several rounds, in microseconds a request: in the first rounds all are learned from, in the last
ones a sample. The entries are built like Envoy's, 100 in a message, from the decisions of `ledger_dictionary.py`.
gRPC itself, and what a control plane does when no request ends, are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from prometheus_client import CollectorRegistry

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from ledger_dictionary import read_prompts, recorded

from controlplane.crediting import Crediting
from controlplane.estimation.estimation import Estimation
from controlplane.estimation.keys import EstimationKeys
from controlplane.etcd.client import EtcdClient
from controlplane.etcd.connection import EtcdAccess
from controlplane.ledger.composition import CompositionWatch
from controlplane.ledger.decision_log import DecisionLog
from controlplane.ledger.decisions import Decisions
from controlplane.ledger.entry import DECISION_KEY, DECISION_NAMESPACE, USAGE_NAMESPACE, ended_request
from controlplane.ledger.row import Recorded
from controlplane.ledger.sessions import SessionHistory
from controlplane.ledger.sla import SlaWatch
from controlplane.ledger.sqlite_store import SqliteStore
from controlplane.ledger.writer import MOST_ROWS
from controlplane.metrics import ControlPlaneMetrics
from controlplane.policy.settings import Policy
from controlplane.recording import Recording
from controlplane.view import CurrentView
from headrace_protos.envoy.data.accesslog.v3 import accesslog_pb2
from headrace_protos.envoy.service.accesslog.v3 import als_pb2
from headrace_protos.headrace.v1 import decision_pb2

T = TypeVar("T")
U = TypeVar("U")

MODEL = "llama"
IN_A_MESSAGE = 100
ROUNDS = 20


def entry(made: decision_pb2.RecordedDecision) -> accesslog_pb2.HTTPAccessLogEntry:
    """What Envoy's access log would bring of it."""
    outcome = made.outcome
    sent = accesslog_pb2.HTTPAccessLogEntry()
    sent.request.request_id = made.request_id
    sent.request.path, sent.request.authority = "/v1/chat/completions", "gateway:8080"
    sent.request.request_headers["x-request-id"] = made.request_id
    sent.response.response_code.value = outcome.status
    sent.response.response_code_details = outcome.details
    common = sent.common_properties
    common.start_time.CopyFrom(made.time)
    for field, seconds in (
        (common.duration, outcome.duration_seconds),
        (common.time_to_last_rx_byte, outcome.received_seconds),
        (common.time_to_first_upstream_rx_byte, outcome.first_byte_seconds),
        (common.time_to_last_upstream_rx_byte, outcome.last_byte_seconds),
    ):
        field.FromMicroseconds(int(seconds * 1e6))
    common.custom_tags["first_content_us"] = str(int(outcome.first_content_seconds * 1e6))
    common.upstream_cluster = common.route_name = outcome.cluster
    common.upstream_request_attempt_count = outcome.attempts
    host, _, port = outcome.upstream.rpartition(":")
    common.upstream_remote_address.socket_address.address = host
    common.upstream_remote_address.socket_address.port_value = int(port or 0)
    encoded = base64.b64encode(made.decision.SerializeToString()).decode()
    common.metadata.filter_metadata[DECISION_NAMESPACE].update({DECISION_KEY: encoded})
    usage = {"prompt_tokens": outcome.prompt_tokens, "completion_tokens": outcome.completion_tokens}
    common.metadata.filter_metadata[USAGE_NAMESPACE].update(usage)
    return sent


def messages(count: int) -> list[bytes]:
    dice, prompts = random.Random(1), read_prompts()
    entries: list[accesslog_pb2.HTTPAccessLogEntry] = []
    while len(entries) < count:
        made = decision_pb2.RecordedDecision.FromString(recorded(dice, prompts, [MODEL]))
        if made.decision.pool:
            entries.append(entry(made))
    parts = [entries[start : start + IN_A_MESSAGE] for start in range(0, len(entries), IN_A_MESSAGE)]
    return [
        als_pb2.StreamAccessLogsMessage(
            http_logs=als_pb2.StreamAccessLogsMessage.HTTPAccessLogEntries(log_entry=part)
        ).SerializeToString()
        for part in parts
    ]


def recording() -> Recording:
    """As a control plane has it, but without a ledger: that is measured by itself."""
    policy = Policy()
    metrics = ControlPlaneMetrics(CollectorRegistry())
    client = EtcdClient(EtcdAccess(("127.0.0.1:1",)))  # never asked
    return Recording(
        Decisions(10_000, 1, time.time),
        Crediting(CurrentView(None), time.time),
        metrics,
        CompositionWatch(time.monotonic),
        SlaWatch(lambda: policy.sla, time.monotonic),
        DecisionLog(0.0),
        Estimation(client, EstimationKeys(), lambda: policy, lambda: (MODEL,), metrics.taught),
    )


class Stopwatch:
    """The least time that each part has taken."""

    def __init__(self) -> None:
        self.least: dict[str, float] = {}

    def lap(self, name: str, work: Callable[[T], U], on: Sequence[T], per: int) -> list[U]:
        before = time.thread_time()
        results = [work(each) for each in on]
        self.took(name, (time.thread_time() - before) / per)
        return results

    def took(self, name: str, seconds: float) -> None:
        self.least[name] = min(seconds, self.least.get(name, seconds))


async def main(count: int) -> None:
    sent = messages(count)
    sessions, told = SessionHistory(60.0), recording()
    watch = Stopwatch()
    for _ in range(ROUNDS):
        parsed = watch.lap("parsing", als_pb2.StreamAccessLogsMessage.FromString, sent, count)
        entries = [each for message in parsed for each in message.http_logs.log_entry]
        made = watch.lap("reading", lambda each: ended_request(each, sessions), entries, count)
        watch.lap("all who are told", told.request_finished, made, count)
        kept = [Recorded(each, number, 1) for number, each in enumerate(made)]
        rows = watch.lap("ledger rows", lambda each: each.row, kept, count)
        with tempfile.TemporaryDirectory() as folder:
            store = SqliteStore(Path(folder) / "ledger.sqlite")
            began = time.process_time()
            for start in range(0, count, MOST_ROWS):
                await store.write(rows[start : start + MOST_ROWS], [])
            watch.took("SQLite", (time.process_time() - began) / count)
            await store.close()
    for name, seconds in (watch.least | {"together": sum(watch.least.values())}).items():
        print(f"{name:20}{seconds * 1e6:8.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=2_000)
    asyncio.run(main(parser.parse_args().entries))
