"""What is learned of tokens, to see, to forget, to keep: over gRPC, on a real etcd."""

from __future__ import annotations

import grpc
import pytest

from controlplane.ledger.encoding import ended_of
from controlplane.messages import node_spec_message
from headrace_protos.headrace.v1 import admin_pb2, calibration_pb2, fleet_pb2, registry_pb2
from support.nodes import node
from support.services import Services, status_of
from support.usage import recorded, report
from support.waiting import until

EVERYTHING = calibration_pb2.GetCalibrationRequest()


async def shown(services: Services, model: str) -> calibration_pb2.ModelCalibration:
    request = calibration_pb2.GetCalibrationRequest(model=model)
    (found,) = (await services.fleet.GetCalibration(request)).models
    return found


async def test_a_model_is_learned_of_pinned_reset_and_let_go_on(services: Services) -> None:
    model = "llama"
    await services.registry.Register(registry_pb2.RegisterRequest(node=node_spec_message(node())))

    async def is_served() -> bool:
        return [each.model for each in (await services.fleet.GetCalibration(EVERYTHING)).models] == [model]

    await until(is_served)
    assert await shown(services, model) == calibration_pb2.ModelCalibration(model=model)
    for number in range(60):
        services.estimation.learn(ended_of(recorded(report(number=number, model=model, factor=1.5))))

    async def is_learned() -> bool:
        return [each.samples for each in (await shown(services, model)).categories] == [60]

    await until(is_learned)
    (category,) = (await shown(services, model)).categories
    assert category.category == "prose"
    assert category.convergence[-1].samples >= 31
    assert [each.threshold for each in category.mis_routed] == [8192]
    usage = (await services.fleet.GetCalibration(EVERYTHING)).usage
    assert [(each.result, each.streamed, each.requests) for each in usage] == [("learned", False, 60)]

    async def is_in_force() -> bool:
        return (await shown(services, model)).categories[0].HasField("in_force")

    await until(is_in_force)
    pinned = await services.admin.PinCalibration(admin_pb2.PinCalibrationRequest(model=model))
    assert list(pinned.categories) == ["prose"]

    async def is_pinned() -> bool:
        return (await shown(services, model)).HasField("pinned_at") and model in services.estimation.told().pinned

    await until(is_pinned)
    reset = await services.admin.ResetCalibration(admin_pb2.ResetCalibrationRequest(model=model))
    assert reset.generation == 1

    async def is_forgotten() -> bool:
        found = await shown(services, model)
        return found.generation == 1 and not sum(each.samples for each in found.categories)

    await until(is_forgotten)
    (category,) = (await shown(services, model)).categories
    assert (category.category, category.HasField("in_force")) == ("prose", True)  # what is pinned stays
    await services.admin.UnpinCalibration(admin_pb2.UnpinCalibrationRequest(model=model))
    await until(lambda: not services.estimation.told().learned)
    code, details = await status_of(services.admin.UnpinCalibration(admin_pb2.UnpinCalibrationRequest(model=model)))
    assert code is grpc.StatusCode.NOT_FOUND
    assert "not pinned" in details


async def test_nothing_can_be_done_to_a_model_that_nobody_knows(services: Services) -> None:
    for call in (
        services.admin.ResetCalibration(admin_pb2.ResetCalibrationRequest(model="none")),
        services.admin.PinCalibration(admin_pb2.PinCalibrationRequest(model="none")),
        services.admin.UnpinCalibration(admin_pb2.UnpinCalibrationRequest(model="none")),
        services.fleet.GetCalibration(calibration_pb2.GetCalibrationRequest(model="none")),
    ):
        code, details = await status_of(call)
        assert code is grpc.StatusCode.NOT_FOUND
        assert "none" in details


async def test_explain_says_what_the_estimate_rests_on(services: Services) -> None:
    await services.registry.Register(registry_pb2.RegisterRequest(node=node_spec_message(node())))
    body = b'{"model": "llama", "messages": [{"role": "user", "content": "Tell me a story."}]}'

    async def rests_on() -> str:
        try:
            answer = await services.fleet.Explain(fleet_pb2.ExplainRequest(body=body))
        except grpc.aio.AioRpcError:
            return ""
        return answer.decision.budget.rests_on

    async def is_prior() -> bool:
        return await rests_on() == "prior"

    await until(is_prior)
    for number in range(30):
        services.estimation.learn(ended_of(recorded(report(number=number, model="llama"))))

    async def is_learned() -> bool:
        return await rests_on() == "learned"

    await until(is_learned)


pytestmark = pytest.mark.timeout(120)
