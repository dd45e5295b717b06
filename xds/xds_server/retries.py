"""What is tried again, when, and where: requests at engines, and the questions to the filter."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from headrace_protos.envoy.config.route.v3 import route_components_pb2
from headrace_protos.envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from headrace_protos.envoy.extensions.retry.priority.previous_priorities.v3 import previous_priorities_config_pb2
from xds_server.resource import packed

# A retry goes to another host than the attempts before it.
_PREVIOUS_HOSTS: Mapping[str, Any] = {
    "name": "envoy.retry_host_predicates.previous_hosts",
    "typed_config": packed(previous_hosts_pb2.PreviousHostsPredicate()),
}
_NEXT_PRIORITY = route_components_pb2.RetryPolicy.RetryPriority(
    name="envoy.retry_priorities.previous_priorities",
    typed_config=packed(previous_priorities_config_pb2.PreviousPrioritiesConfig(update_frequency=1)),
)
# How often a load balancer is asked for another host. A dead one has the fewest requests, so it is offered often.
_HOST_SELECTIONS = 30


def of_requests() -> route_components_pb2.RetryPolicy:
    """On another host, and only what certainly did no work on the first."""
    return _on_another_host("connect-failure,refused-stream,reset-before-request", 0.025, 0.25)


def of_requests_and_400s() -> route_components_pb2.RetryPolicy:
    """Once, and at the next priority, whatever the reason: Envoy has one count for all, and a request that was refused
    twice must not be tried a third time."""
    policy = of_requests()
    policy.retry_on += ",retriable-status-codes"
    policy.retriable_status_codes.append(400)
    policy.num_retries.value = 1
    policy.retry_priority.CopyFrom(_NEXT_PRIORITY)
    # It goes to other engines, which need no rest.
    policy.retry_back_off.base_interval.FromMilliseconds(1)
    return policy


def of_questions() -> route_components_pb2.RetryPolicy:
    """A filter decides and does nothing else, so whatever it did not answer is asked of another one, soon."""
    return _on_another_host("connect-failure,reset,refused-stream,unavailable", 0.005, 0.02)


def _on_another_host(on: str, first_after: float, at_most_after: float) -> route_components_pb2.RetryPolicy:
    """Times in seconds."""
    return route_components_pb2.RetryPolicy(
        retry_on=on,
        num_retries={"value": 2},
        retry_host_predicate=[_PREVIOUS_HOSTS],
        host_selection_retry_max_attempts=_HOST_SELECTIONS,
        retry_back_off={
            "base_interval": timedelta(seconds=first_after),
            "max_interval": timedelta(seconds=at_most_after),
        },
    )
