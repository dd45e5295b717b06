"""headrace.v1.Admin: reads and replaces the policy, for all control planes and filters at once, through etcd."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from controlplane.config.load import dump, load_policy
from controlplane.errors import HeadraceError, UnavailableError
from controlplane.services.refusing import refuse
from controlplane.view import CurrentView
from headrace_protos.headrace.v1 import admin_pb2, admin_pb2_grpc

_log = logging.getLogger(__name__)

SERVICE = "headrace.v1.Admin"


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """`store` keeps a policy's YAML for all control planes, or forgets it when given None."""

    def __init__(self, current: CurrentView, store: Callable[[str | None], Awaitable[None]]) -> None:
        self._current = current
        self._store = store

    async def GetPolicy(  # noqa: N802
        self, request: admin_pb2.GetPolicyRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> admin_pb2.GetPolicyResponse:
        view = self._current.value
        if view is None:
            await refuse(context, UnavailableError("the policy has not been read from etcd yet"))
        return admin_pb2.GetPolicyResponse(policy_yaml=dump(view.table.policy), overridden=view.policy_overridden)

    async def SetPolicy(  # noqa: N802
        self, request: admin_pb2.SetPolicyRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> admin_pb2.SetPolicyResponse:
        try:
            load_policy(request.policy_yaml, "policy")
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
