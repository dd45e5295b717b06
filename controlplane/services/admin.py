"""headrace.v1.Admin: policy, overrides of load and calibrations, for the whole fleet at once, through etcd."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import grpc

from controlplane.config.load import dump, load_policy_in_place_of
from controlplane.errors import HeadraceError, UnavailableError, UnknownPoolError
from controlplane.messages import override_message
from controlplane.model import Override
from controlplane.registry.validate import check_override
from controlplane.services.refusing import refuse
from controlplane.view import CurrentView, View
from headrace_protos.headrace.v1 import admin_pb2, admin_pb2_grpc

_log = logging.getLogger(__name__)

SERVICE = "headrace.v1.Admin"


class Overrides(Protocol):
    """Where overrides are kept for all control planes, by pool name."""

    async def put_override(self, pool: str, override: Override) -> None: ...

    async def delete_override(self, pool: str) -> bool: ...


class Calibrations(Protocol):
    """What can be done to the calibration of a model, for all control planes."""

    async def reset(self, model: str) -> int: ...

    async def pin(self, model: str) -> list[str]: ...

    async def unpin(self, model: str) -> None: ...


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """`store` keeps a policy's YAML for all control planes, or forgets it when given None.

    `clock` gives Unix seconds.
    """

    def __init__(
        self,
        current: CurrentView,
        store: Callable[[str | None], Awaitable[None]],
        overrides: Overrides,
        calibrations: Calibrations,
        clock: Callable[[], float],
    ) -> None:
        self._current = current
        self._store = store
        self._overrides = overrides
        self._calibrations = calibrations
        self._clock = clock

    async def GetPolicy(  # noqa: N802
        self, request: admin_pb2.GetPolicyRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> admin_pb2.GetPolicyResponse:
        view = await self._view(context)
        return admin_pb2.GetPolicyResponse(policy_yaml=dump(view.table.policy), overridden=view.policy_overridden)

    async def SetPolicy(  # noqa: N802
        self, request: admin_pb2.SetPolicyRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> admin_pb2.SetPolicyResponse:
        in_force = (await self._view(context)).table.policy
        try:
            load_policy_in_place_of(in_force, request.policy_yaml, "policy")
            await self._store(request.policy_yaml)
        except HeadraceError as error:
            await refuse(context, error)
        _log.info("policy set")
        return admin_pb2.SetPolicyResponse()

    async def ResetPolicy(  # noqa: N802
        self, request: admin_pb2.ResetPolicyRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> admin_pb2.ResetPolicyResponse:
        try:
            await self._store(None)
        except HeadraceError as error:
            await refuse(context, error)
        _log.info("policy reset to the configured one")
        return admin_pb2.ResetPolicyResponse()

    async def SetOverride(  # noqa: N802
        self, request: admin_pb2.SetOverrideRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> admin_pb2.SetOverrideResponse:
        view = await self._view(context)
        now = self._clock()
        override = Override(
            expires_at=now + request.duration_seconds,
            waiting=request.waiting if request.HasField("waiting") else None,
            running=request.running if request.HasField("running") else None,
            kv_cache_use=request.kv_cache_use if request.HasField("kv_cache_use") else None,
            sla_violation_rate=request.sla_violation_rate if request.HasField("sla_violation_rate") else None,
        )
        try:
            check_override(override, request.duration_seconds)
            pools = [pool.name for pool in view.fleet.pools]
            if request.pool not in pools:
                raise UnknownPoolError(f"there is no pool {request.pool!r}", request.pool, pools)
            await self._overrides.put_override(request.pool, override)
        except HeadraceError as error:
            await refuse(context, error)
        _log.warning(
            "OVERRIDE set pool=%s signals=%s for=%gs",
            request.pool,
            ",".join(f"{name}={getattr(override, name):g}" for name in override.signals),
            request.duration_seconds,
        )
        return admin_pb2.SetOverrideResponse(override=override_message(request.pool, override, now))

    async def ListOverrides(  # noqa: N802
        self, request: admin_pb2.ListOverridesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> admin_pb2.ListOverridesResponse:
        view = await self._view(context)
        now = self._clock()
        return admin_pb2.ListOverridesResponse(
            overrides=[override_message(pool, override, now) for pool, override in view.fleet.overrides.items()]
        )

    async def ClearOverride(  # noqa: N802
        self, request: admin_pb2.ClearOverrideRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> admin_pb2.ClearOverrideResponse:
        view = await self._view(context)
        try:
            if not await self._overrides.delete_override(request.pool):
                raise UnknownPoolError(
                    f"nothing overrides the load of {request.pool!r}", request.pool, view.fleet.overrides
                )
        except HeadraceError as error:
            await refuse(context, error)
        _log.warning("override cleared pool=%s", request.pool)
        return admin_pb2.ClearOverrideResponse()

    async def ResetCalibration(  # noqa: N802
        self, request: admin_pb2.ResetCalibrationRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> admin_pb2.ResetCalibrationResponse:
        try:
            generation = await self._calibrations.reset(request.model)
        except HeadraceError as error:
            await refuse(context, error)
        return admin_pb2.ResetCalibrationResponse(generation=generation)

    async def PinCalibration(  # noqa: N802
        self, request: admin_pb2.PinCalibrationRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> admin_pb2.PinCalibrationResponse:
        try:
            categories = await self._calibrations.pin(request.model)
        except HeadraceError as error:
            await refuse(context, error)
        return admin_pb2.PinCalibrationResponse(categories=categories)

    async def UnpinCalibration(  # noqa: N802
        self, request: admin_pb2.UnpinCalibrationRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> admin_pb2.UnpinCalibrationResponse:
        try:
            await self._calibrations.unpin(request.model)
        except HeadraceError as error:
            await refuse(context, error)
        return admin_pb2.UnpinCalibrationResponse()

    async def _view(self, context: grpc.aio.ServicerContext[Any, Any]) -> View:
        view = self._current.value
        if view is None:
            await refuse(context, UnavailableError("fleet and policy have not been read from etcd yet"))
        return view
