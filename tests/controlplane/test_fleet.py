from dataclasses import replace

import pytest

from controlplane.fleet import form_fleet, pools_by_node, pools_of
from controlplane.model import (
    CapacityType,
    FormatTier,
    NodeLoad,
    NodeSession,
    NodeSpec,
    Override,
    PoolLoad,
    ServedModel,
)
from controlplane.policy.settings import ContextClass, Policy

POLICY = Policy()
NOW = 1000.0


def node(name: str, format_: str = "fp16", *, context: int = 8192, sequences: int = 4, **more: object) -> NodeSession:
    model = ServedModel("llama", format_, context, sequences)
    spec = NodeSpec(name, f"10.0.0.{len(name)}:8000", (model,), **more)  # type: ignore[arg-type]
    return NodeSession(f"session-{name}", spec, registered_at=0.0)


def serving(session: NodeSession, **changes: object) -> NodeSession:
    model = replace(session.spec.models[0], **changes)  # type: ignore[arg-type]
    return replace(session, spec=replace(session.spec, models=(model,)))


def test_nodes_alike_form_one_pool() -> None:
    fleet = form_fleet([node("b"), node("a")], {}, POLICY, NOW)
    (pool,) = fleet.pools
    assert pool.name == "llama/full/short/on_demand"
    assert (pool.nodes, pool.ready_nodes, pool.max_sequences) == (2, 2, 8)
    assert [m.session.spec.node_id for m in fleet.members_of(pool.name)] == ["a", "b"]


@pytest.mark.parametrize(
    ("session", "pool"),
    [
        (node("a", "int4-awq"), "llama/quantized/short/on_demand"),
        (node("a", "bf16", context=8193), "llama/full/long/on_demand"),
        (node("a", capacity_type=CapacityType.SPOT), "llama/full/short/spot"),
        (serving(node("a", "int4-awq"), served_name="llama-awq"), "llama/quantized/short/on_demand=llama-awq"),
        (serving(node("a"), served_name="llama"), "llama/full/short/on_demand"),
        # An `@` sets what a cluster is for apart from its pool's name.
        (serving(node("a"), served_name="x@all"), "llama/full/short/on_demand=x%40all"),
        (serving(node("a"), served_name="x%40all"), "llama/full/short/on_demand=x%2540all"),
    ],
)
def test_a_pool_is_named_by_all_in_which_its_nodes_are_alike(session: NodeSession, pool: str) -> None:
    assert [p.name for p in form_fleet([session], {}, POLICY, NOW).pools] == [pool]
    assert pools_of(session.spec, POLICY) == (pool,)


def test_context_classes_are_as_configured() -> None:
    classes = (ContextClass("s", 2048), ContextClass("m", 8192), ContextClass("l"))
    fleet = form_fleet(
        [node("a", context=2048), node("bb", context=4096), node("ccc", context=9000)],
        {},
        replace(POLICY, context_classes=classes),
        NOW,
    )
    assert sorted(p.context_class for p in fleet.pools) == ["l", "m", "s"]


def test_what_fits_a_pool_fits_each_of_its_nodes() -> None:
    (pool,) = form_fleet([node("a", context=4096), node("bb", context=8192)], {}, POLICY, NOW).pools
    assert pool.max_context == 4096


def test_a_node_that_is_not_ready_does_not_count_in_room_nor_context() -> None:
    sessions = [node("a", context=4096), replace(node("bb", context=8192), draining=True)]
    loads = {"a": NodeLoad(0, 0, healthy=True, reported_at=NOW)}
    (pool,) = form_fleet(sessions, loads, POLICY, NOW).pools
    assert (pool.nodes, pool.ready_nodes, pool.max_sequences, pool.max_context) == (2, 1, 4, 4096)


@pytest.mark.parametrize(
    ("load", "draining", "ready"),
    [
        (None, False, True),
        (NodeLoad(0, 0, healthy=True, reported_at=NOW), False, True),
        (NodeLoad(0, 0, healthy=False, reported_at=NOW), False, False),
        (NodeLoad(0, 0, healthy=False, reported_at=NOW - 3600), False, False),
        (NodeLoad(0, 0, healthy=True, reported_at=NOW - 3600), False, True),
        (None, True, False),
    ],
)
def test_readiness(load: NodeLoad | None, draining: bool, ready: bool) -> None:
    loads = {"a": load} if load else {}
    (member,) = form_fleet([replace(node("a"), draining=draining)], loads, POLICY, NOW).members
    assert member.ready is ready


def test_the_load_of_a_pool_is_that_of_its_ready_nodes_with_fresh_reports() -> None:
    loads = {
        "a": NodeLoad(3, 1, kv_cache_use=0.5, reported_at=NOW),
        "bb": NodeLoad(5, 2, kv_cache_use=0.7, reported_at=NOW),
        "ccc": NodeLoad(50, 20, kv_cache_use=1.0, reported_at=NOW - 60),
        "dddd": NodeLoad(7, 7, kv_cache_use=1.0, healthy=False, reported_at=NOW),
        "eeeee": NodeLoad(1, 0, kv_cache_use=None, reported_at=NOW),
    }
    (pool,) = form_fleet([node(name) for name in loads], loads, POLICY, NOW).pools
    assert pool.load == PoolLoad(running=9, waiting=3, kv_cache_use=pytest.approx(0.6))


def test_without_a_fresh_report_the_load_is_unknown() -> None:
    loads = {"a": NodeLoad(3, 1, reported_at=NOW - 60)}
    (pool,) = form_fleet([node("a")], loads, POLICY, NOW).pools
    assert pool.load is None


FULL = "llama/full/short/on_demand"


@pytest.mark.parametrize(
    ("override", "load", "overridden"),
    [
        (Override(NOW + 1, waiting=100), PoolLoad(3, 100, 0.5), ("waiting",)),
        (Override(NOW + 1, running=0), PoolLoad(0, 1, 0.5), ("running",)),
        (Override(NOW + 1, kv_cache_use=0.0), PoolLoad(3, 1, 0.0), ("kv_cache_use",)),
        (Override(NOW + 1, 7, 8, 0.9), PoolLoad(8, 7, 0.9), ("waiting", "running", "kv_cache_use")),
        (Override(NOW, waiting=100), PoolLoad(3, 1, 0.5), ()),
        (Override(NOW - 60, waiting=100), PoolLoad(3, 1, 0.5), ()),
    ],
)
def test_an_overridden_signal_counts_in_place_of_the_measured_one_until_it_expires(
    override: Override, load: PoolLoad, overridden: tuple[str, ...]
) -> None:
    loads = {"a": NodeLoad(3, 1, kv_cache_use=0.5, reported_at=NOW)}
    fleet = form_fleet([node("a")], loads, POLICY, NOW, {FULL: override})
    (pool,) = fleet.pools
    assert (pool.load, pool.overridden) == (load, overridden)
    assert fleet.overrides == ({FULL: override} if overridden else {})


def test_a_load_that_nobody_knows_can_be_overridden_too() -> None:
    (pool,) = form_fleet([node("a")], {}, POLICY, NOW, {FULL: Override(NOW + 1, waiting=5)}).pools
    assert (pool.load, pool.overridden) == (PoolLoad(running=0, waiting=5, kv_cache_use=None), ("waiting",))


def test_an_override_changes_no_other_pool_and_is_shown_when_its_pool_is_gone() -> None:
    gone = Override(NOW + 1, waiting=5)
    fleet = form_fleet([node("a"), node("bb", "int4-awq")], {}, POLICY, NOW, {"gone": gone, FULL: gone})
    assert [pool.overridden for pool in fleet.pools] == [("waiting",), ()]
    assert dict(fleet.overrides) == {"gone": gone, FULL: gone}


def test_only_aliases_that_every_node_accepts_are_the_pools() -> None:
    sessions = [serving(node("a"), aliases=("x", "y")), serving(node("bb"), aliases=("y", "z"))]
    (pool,) = form_fleet(sessions, {}, POLICY, NOW).pools
    assert pool.aliases == ("y",)


def test_formats_are_listed_with_the_highest_fidelity_first() -> None:
    sessions = [node("a", "int4-bnb"), node("bb", "fp8"), node("ccc", "int4-awq")]
    (pool,) = form_fleet(sessions, {}, POLICY, NOW).pools
    assert (pool.tier, pool.formats) == (FormatTier.QUANTIZED, ("fp8", "int4-awq", "int4-bnb"))


def test_a_node_with_several_models_is_in_several_pools() -> None:
    session = node("a")
    models = (*session.spec.models, ServedModel("qwen", "int4-awq", 32768, 8))
    session = replace(session, spec=replace(session.spec, models=models))
    fleet = form_fleet([session], {}, POLICY, NOW)
    assert pools_by_node(fleet) == {"a": ("llama/full/short/on_demand", "qwen/quantized/long/on_demand")}


def test_a_node_quiesces_until_its_time_and_its_pool_says_how_many_do_and_for_how_long() -> None:
    sessions = [node("a"), replace(node("bb"), settles_at=NOW + 10.2), replace(node("ccc"), settles_at=NOW + 30)]
    assert quiescence(sessions, NOW) == (3, 2, 1, 11.0)
    assert quiescence(sessions, NOW + 10.2) == (3, 1, 2, 20.0)
    assert quiescence(sessions, NOW + 30) == (3, 0, 3, 0.0)


def test_a_pool_says_since_when_sessions_are_new_to_all_its_nodes() -> None:
    first = replace(node("a"), settles_at=NOW + 10, quiesces_since=NOW - 50)
    last = replace(node("b"), settles_at=NOW + 30, quiesces_since=NOW - 30)
    since = [form_fleet([first, last], {}, POLICY, NOW + later).pools[0].quiesces_since for later in (0, 10, 30)]
    assert since == [NOW - 30, NOW - 30, 0.0]


def test_a_quiescing_node_that_is_not_ready_counts_nowhere() -> None:
    sessions = [node("a"), replace(node("bb"), settles_at=NOW + 10, draining=True)]
    assert quiescence(sessions, NOW) == (1, 0, 1, 0.0)


def quiescence(sessions: list[NodeSession], now: float) -> tuple[int, int, int, float]:
    (pool,) = form_fleet(sessions, {}, POLICY, now).pools
    return pool.ready_nodes, pool.quiescing_nodes, pool.settled_nodes, pool.settles_in
