"""The delta protocol as seen by a client, without sockets."""

from __future__ import annotations

import dataclasses

import pytest

from headrace_protos.envoy.service.discovery.v3 import discovery_pb2
from xds_server.assembly import gateway_snapshot
from xds_server.gateway import Endpoint, Gateway, PoolCluster
from xds_server.rejections import Rejections
from xds_server.resource import ResourceType
from xds_server.stream import Acknowledged, DeltaStream, ProtocolError, Rejected

CDS, EDS, LDS, RDS = ResourceType
GATEWAY = Gateway(ext_proc=("127.0.0.1:1",))
OURS = ("headrace-ext-proc", "headrace-usage-log")


def pool(name: str, *last_bytes: int, health_path: str | None = "/health") -> PoolCluster:
    return PoolCluster(name, tuple(Endpoint(f"10.0.0.{byte}", 8000) for byte in last_bytes or (1,)), health_path)


def snapshot(*pools: PoolCluster, **gateway: object):
    return gateway_snapshot(dataclasses.replace(GATEWAY, **gateway), pools)


class Client:
    """Speaks delta xDS to one stream, and by default acknowledges all it gets."""

    def __init__(self, published, rejections: Rejections | None = None) -> None:
        self.published = published
        self.stream = DeltaStream(rejections or Rejections(), "test")
        self.log: list[tuple[str, list[str], list[str]]] = []

    def ask(self, kind, subscribe=(), unsubscribe=(), *, versions=None, nonce="", error=None):
        request = discovery_pb2.DeltaDiscoveryRequest(
            node={"id": "n"},
            type_url=kind,
            resource_names_subscribe=subscribe,
            resource_names_unsubscribe=unsubscribe,
            initial_resource_versions=versions or {},
            response_nonce=nonce,
        )
        if error is not None:
            request.error_detail.message = error
        return self.stream.receive(request)

    def next(self):
        """The next response as (type, names, removed names), None when there is none now."""
        response = self.stream.respond(self.published)
        if response is None:
            return None
        self.last = response
        return (
            ResourceType(response.type_url),
            [resource.name for resource in response.resources],
            list(response.removed_resources),
        )

    def ack(self):
        return self.ask(self.last.type_url, nonce=self.last.nonce)

    def nack(self, error="bad"):
        return self.ask(self.last.type_url, nonce=self.last.nonce, error=error)

    def settle(self):
        """Take and acknowledge all there is; returns it."""
        taken = []
        while (response := self.next()) is not None:
            taken.append(response)
            self.ack()
        return taken

    @classmethod
    def settled(cls, published, rejections=None):
        """As an Envoy that has everything."""
        client = cls(published, rejections)
        client.ask(CDS)
        client.settle()
        names = sorted(published.resources[EDS])
        if names:
            client.ask(EDS, names)
            client.settle()
        client.ask(LDS)
        client.settle()
        client.ask(RDS, ["pools"])
        client.settle()
        assert client.stream.acknowledged_version == published.version
        return client


# --- subscribing ---------------------------------------------------------------------------------------------------


def test_a_first_request_without_names_subscribes_to_all_clusters():
    client = Client(snapshot(pool("a"), pool("b")))
    client.ask(CDS)
    assert client.next() == (CDS, [*OURS, "a", "b"], [])


def test_a_star_subscribes_to_all_and_its_unsubscription_ends_that():
    client = Client(snapshot(pool("a")))
    client.ask(CDS, ["*"])
    assert client.next() == (CDS, [*OURS, "a"], [])
    client.ack()
    client.ask(CDS, unsubscribe=["*"])
    client.published = snapshot(pool("a"), pool("b"))
    assert client.next() is None


def test_only_named_endpoints_are_sent():
    client = Client(snapshot(pool("a"), pool("b"), pool("c")))
    client.ask(EDS, ["c", "a"])
    assert client.next() == (EDS, ["a", "c"], [])


def test_names_can_be_added_and_taken_away():
    client = Client(snapshot(pool("a"), pool("b")))
    client.ask(EDS, ["a"])
    client.settle()
    client.ask(EDS, ["b"], ["a"])
    assert client.settle() == [(EDS, ["b"], [])]
    client.published = snapshot(pool("a", 7), pool("b", 7))
    assert client.settle() == [(EDS, ["b"], [])]


def test_what_is_subscribed_to_again_is_sent_again():
    client = Client(snapshot(pool("a")))
    client.ask(EDS, ["a"])
    client.settle()
    client.ask(EDS, ["a"])
    assert client.settle() == [(EDS, ["a"], [])]


def test_what_is_dropped_and_wanted_again_while_on_its_way_is_sent_again():
    client = Client(snapshot(pool("a")))
    client.ask(EDS, ["a"])
    client.next()
    client.ask(EDS, unsubscribe=["a"])
    client.ask(EDS, ["a"])
    client.ack()
    assert client.settle() == [(EDS, ["a"], [])]


def test_a_name_that_does_not_exist_is_answered_once_as_removed():
    client = Client(snapshot())
    client.ask(EDS, ["ghost"])
    assert client.settle() == [(EDS, [], ["ghost"])]
    client.published = snapshot(pool("ghost"))
    assert client.settle() == [(EDS, ["ghost"], [])]


def test_a_first_wildcard_is_answered_even_with_nothing():
    client = Client(type(snapshot()).of([]))
    client.ask(LDS)
    assert client.settle() == [(LDS, [], [])]


def test_nothing_is_sent_when_nothing_changed():
    client = Client.settled(snapshot(pool("a")))
    client.published = snapshot(pool("a"))
    assert client.next() is None


# --- order ---------------------------------------------------------------------------------------------------------


def test_a_new_pool_comes_as_cluster_and_endpoints_and_its_route_once_the_cluster_is_warm():
    client = Client.settled(snapshot(pool("a")))
    client.published = snapshot(pool("a"), pool("b"))
    assert client.next() == (CDS, ["b"], [])
    cluster = client.last
    client.ask(EDS, ["b"])
    assert client.next() == (EDS, ["b"], [])  # before the cluster is acknowledged, which waits for it
    client.ack()
    assert client.next() is None
    client.last = cluster
    client.ack()
    assert client.settle() == [(RDS, ["pools"], [])]


def test_a_pool_is_removed_only_when_no_route_leads_to_it():
    client = Client.settled(snapshot(pool("a"), pool("b")))
    client.published = snapshot(pool("a"))
    assert client.next() == (RDS, ["pools"], [])
    assert client.next() is None
    client.ack()
    assert client.next() == (CDS, [], ["b"])
    assert client.next() is None
    client.ack()
    assert client.settle() == [(EDS, [], ["b"])]
    assert client.stream.acknowledged_version == client.published.version


def test_a_cluster_stays_while_the_routes_without_it_are_refused():
    client = Client.settled(snapshot(pool("a"), pool("b")))
    client.published = snapshot(pool("a"))
    assert client.next() == (RDS, ["pools"], [])
    client.nack()
    assert client.next() is None


def test_endpoints_are_sent_again_after_an_update_of_their_cluster():
    client = Client.settled(snapshot(pool("a"), pool("b")))
    client.published = snapshot(pool("a", health_path="/other"), pool("b"))
    assert client.next() == (CDS, ["a"], [])
    assert client.next() == (EDS, ["a"], [])


def test_they_are_also_sent_when_the_update_comes_at_a_reconnection_before_the_endpoints_are_asked_for():
    before, after = snapshot(pool("a"), pool("b")), snapshot(pool("a", health_path="/other"), pool("b"))
    client = Client(after)
    client.ask(CDS, ["*"], versions=_versions(before, CDS))
    assert client.next() == (CDS, ["a"], [])
    client.ask(EDS, ["a", "b"], versions=_versions(before, EDS))
    assert client.next() == (EDS, ["a"], [])


def test_changes_while_a_response_is_on_its_way_are_sent_together_after_it():
    client = Client.settled(snapshot(pool("a"), pool("b")))
    client.published = snapshot(pool("a", 2), pool("b"))
    assert client.next() == (EDS, ["a"], [])
    client.published = snapshot(pool("a", 3), pool("b"))
    client.published = snapshot(pool("a", 4), pool("b", 4))
    assert client.next() is None
    client.ack()
    assert client.settle() == [(EDS, ["a", "b"], [])]


def test_the_snapshot_counts_as_acknowledged_only_when_all_of_it_is():
    client = Client.settled(snapshot(pool("a")))
    old, new = client.published.version, snapshot(pool("a", 2), route_timeout=5.0)
    client.published = new
    client.next()
    client.ack()
    client.next()
    assert client.stream.acknowledged_version == old
    client.ack()
    assert client.next() is None
    assert client.stream.acknowledged_version == new.version


# --- verdicts ------------------------------------------------------------------------------------------------------


def test_an_acknowledgement_names_what_is_held_now():
    client = Client(snapshot(pool("a")))
    client.ask(CDS)
    client.next()
    assert client.ack() == Acknowledged(CDS, (*OURS, "a"))


def test_a_nonce_of_another_response_says_nothing():
    client = Client(snapshot(pool("a")))
    client.ask(CDS)
    client.next()
    assert client.ask(CDS, nonce="another") is None
    assert client.ask(CDS, nonce="another", error="bad") is None
    assert client.next() is None


def test_a_nacked_version_is_never_sent_again_and_a_later_one_is():
    client = Client.settled(snapshot(pool("a")))
    old = client.stream.acknowledged_version
    client.published = bad = snapshot(pool("a", 2))
    assert client.next() == (EDS, ["a"], [])
    assert client.nack("no") == Rejected(EDS, ("a",), (bad.resources[EDS]["a"].version,), "no")
    assert client.next() is None
    assert client.stream.acknowledged_version == old
    client.published = snapshot(pool("a", 3))
    assert client.settle() == [(EDS, ["a"], [])]
    client.published = bad
    assert client.next() is None


def test_a_version_nacked_on_one_stream_is_not_sent_on_another():
    rejections = Rejections()
    first, second = (Client.settled(snapshot(pool("a")), rejections) for _ in range(2))
    first.published = second.published = snapshot(pool("a", 2))
    first.next()
    first.nack()
    assert second.next() is None


def test_a_newcomer_gets_the_last_good_version_in_place_of_a_refused_one():
    rejections = Rejections()
    good, bad = snapshot(pool("a")), snapshot(pool("a", 2))
    first = Client.settled(good, rejections)
    first.published = bad
    first.next()
    first.nack()
    newcomer = Client(bad, rejections)
    newcomer.ask(EDS, ["a"])
    assert newcomer.next() == (EDS, ["a"], [])
    assert newcomer.last.resources[0].version == good.resources[EDS]["a"].version


def test_a_refused_resource_without_a_good_version_is_answered_as_removed_so_that_nothing_waits_for_it():
    client = Client(snapshot(pool("a")))
    client.ask(EDS, ["a"])
    client.next()
    client.nack()
    assert client.settle() == [(EDS, [], ["a"])]


@pytest.mark.parametrize("culprit", range(7))
def test_one_bad_resource_of_many_does_not_hold_up_the_others(culprit):
    names = [f"p{number}" for number in range(7)]
    client = Client.settled(snapshot(*(pool(name) for name in names)))
    client.published = snapshot(*(pool(name, 2) for name in names))
    sends, alone = 0, 0
    while (response := client.next()) is not None:
        sends += 1
        if f"p{culprit}" in response[1]:
            alone += len(response[1]) == 1
            client.nack()
        else:
            client.ack()
    held = client.stream._subscriptions[EDS].held
    assert {name for name in names if held[name].version == client.published.resources[EDS][name].version} == {
        name for name in names if name != f"p{culprit}"
    }
    assert alone == 1
    assert sends <= 10


# --- reconnecting --------------------------------------------------------------------------------------------------


def test_after_a_reconnection_only_what_differs_is_sent():
    before, after = snapshot(pool("a"), pool("b")), snapshot(pool("a"), pool("b", 2))
    client = Client(after)
    client.ask(CDS, ["*"], versions=_versions(before, CDS))
    client.ask(EDS, ["a", "b"], versions=_versions(before, EDS))
    client.ask(LDS, ["*"], versions=_versions(before, LDS))
    client.ask(RDS, ["pools"], versions=_versions(before, RDS))
    assert client.settle() == [(EDS, ["b"], [])]
    assert client.stream.acknowledged_version == after.version


def test_after_a_reconnection_what_is_gone_is_removed_once_the_new_routes_are_held():
    before, after = snapshot(pool("a"), pool("b")), snapshot(pool("a"))
    client = Client(after)
    client.ask(CDS, ["*"], versions=_versions(before, CDS))
    client.ask(EDS, ["a", "b"], versions=_versions(before, EDS))
    client.ask(LDS, ["*"], versions=_versions(before, LDS))
    client.ask(RDS, ["pools"], versions=_versions(before, RDS))
    assert client.settle() == [(RDS, ["pools"], []), (CDS, [], ["b"]), (EDS, [], ["b"])]


# --- bad requests --------------------------------------------------------------------------------------------------


def test_a_first_request_without_a_node_id_is_refused():
    with pytest.raises(ProtocolError, match=r"node\.id"):
        DeltaStream(Rejections(), "test").receive(discovery_pb2.DeltaDiscoveryRequest(type_url=CDS))


def test_a_type_that_is_not_served_is_refused():
    client = Client(snapshot())
    with pytest.raises(ProtocolError, match="not served"):
        client.ask("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret")


def _versions(published, kind):
    return {name: resource.version for name, resource in published.resources[kind].items()}
