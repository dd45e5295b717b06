"""Tables that follow each other, read as if each were the first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane import messages
from controlplane.config.load import policy_to_json
from controlplane.messages import pool_message
from controlplane.model import Pool, PoolLoad
from controlplane.policy.settings import Policy, SelectionRules
from controlplane.policy.table import RoutingTable
from ext_proc.table_reader import TableReader
from headrace_protos.headrace.v1 import fleet_pb2
from support.asks import make_pool

POLICIES = (Policy(), Policy(selection=SelectionRules(load=replace(SelectionRules().load, room_kv_cache_use=0.1))))
LOADS = (None, PoolLoad(1, 0, 0.2), PoolLoad(9, 3, 0.95))

POOLS = st.builds(
    lambda tier, context, model, load: make_pool(tier, context, model=model, load=load, aliases=(f"{model}-alias",)),
    st.sampled_from(["full", "quantized"]),
    st.sampled_from(["short", "long"]),
    st.sampled_from(["llama", "qwen"]),
    st.sampled_from(LOADS),
)
TABLES = st.lists(
    st.tuples(st.sampled_from(POLICIES), st.lists(POOLS, max_size=6, unique_by=lambda pool: pool.name)), max_size=6
)


def message(version: int, policy: Policy, pools: list[Pool]) -> fleet_pb2.RoutingTable:
    return fleet_pb2.RoutingTable(
        version=str(version), policy_json=policy_to_json(policy), pools=[pool_message(pool) for pool in pools]
    )


def shown(table: RoutingTable) -> tuple[object, ...]:
    return table.version, table.pools, table.policy, dict(table.names), table.models, table.since, table.calibrations


@given(TABLES)
def test_a_table_is_the_same_whatever_was_read_before_it(tables: list[tuple[Policy, list[Pool]]]) -> None:
    reader = TableReader()
    for version, (policy, pools) in enumerate(tables):
        sent = message(version, policy, pools)
        assert shown(reader.read(sent)) == shown(TableReader().read(sent))


def test_only_pools_that_changed_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    plain = messages.pool

    def counted(message: fleet_pb2.Pool) -> Pool:
        read.append(message.name)
        return plain(message)

    monkeypatch.setattr(messages, "pool", counted)
    pools = [make_pool(model=f"model-{number}") for number in range(20)]
    reader = TableReader()
    first = reader.read(message(1, POLICIES[0], pools))
    read.clear()
    pools[3] = replace(pools[3], load=LOADS[2])
    second = reader.read(message(2, POLICIES[0], pools))
    assert read == [pools[3].name]
    kept = [name for name in first.names if first.names[name][0] is second.names[name][0]]
    assert len(kept) == len(pools) - 1


def test_after_a_table_that_cannot_be_read_the_next_one_is() -> None:
    reader = TableReader()
    good = message(1, POLICIES[0], [make_pool(), make_pool("quantized")])
    expected = reader.read(good)
    bad = message(2, POLICIES[0], [make_pool(model="other")])
    bad.pools.add(name="z", tier="huge")
    with pytest.raises(ValueError, match="huge"):
        reader.read(bad)
    assert shown(reader.read(good)) == shown(expected)
