"""Nodes of a file, and how they and loads read elsewhere join what etcd holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.agentless.listed import joined, listed_nodes
from controlplane.errors import ConfigurationError
from controlplane.model import NodeLoad, NodeSession
from controlplane.registry.state import FleetState

FILE = """
- node_id: a
  address: 10.0.0.1:8000
  models: [{id: llama, format: bf16, max_context: 8192, max_sequences: 64}]
"""
READ = NodeLoad(1, 2, 0.5, sampled=True, reported_at=9.0)


def listed() -> NodeSession:
    [session] = listed_nodes(FILE, "nodes.yaml", 1.0)
    return session


def test_the_same_description_is_the_same_session_on_every_control_plane() -> None:
    (other,) = listed_nodes(FILE, "elsewhere.yaml", 2.0)
    assert other.session_id == listed().session_id
    (changed,) = listed_nodes(FILE.replace("8192", "4096"), "nodes.yaml", 1.0)
    assert changed.session_id != listed().session_id


def test_a_load_that_is_written_down_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"nodes.yaml: a\.load: a load is measured"):
        listed_nodes(FILE + "  load: {running: 1}\n", "nodes.yaml", 1.0)


def test_listed_nodes_join_until_one_registers_in_their_place() -> None:
    session = listed()
    assert joined(FleetState(), [session], {}).sessions == {"a": session}
    registered = replace(session, session_id="its own")
    assert joined(FleetState({"a": registered}), [session], {}).sessions == {"a": registered}
    elsewhere = replace(session, spec=replace(session.spec, node_id="b"))
    assert joined(FleetState({"b": elsewhere}), [session], {}).sessions == {"b": elsewhere}


def test_what_a_node_tells_itself_is_stronger() -> None:
    own = NodeLoad(7, 0, 0.1, reported_at=8.0)
    assert joined(FleetState(), [], {"a": READ}).loads == {"a": READ}
    assert joined(FleetState(loads={"a": own}), [], {"a": READ}).loads == {"a": own}
    dumb = NodeLoad(0, 0, None, healthy=False, uncounted=True, reported_at=8.0)
    assert joined(FleetState(loads={"a": dumb}), [], {"a": READ}).loads == {"a": replace(READ, healthy=False)}
    assert joined(FleetState(loads={"a": dumb}), [], {}).loads == {"a": dumb}
