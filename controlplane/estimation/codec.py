"""A replica's statistics of one model as they lie in etcd: msgpack, compressed. Some KB at first, some 100 at most."""

from __future__ import annotations

import logging
import zlib

import msgspec
from google.protobuf.message import DecodeError

from controlplane.etcd.records import Record
from controlplane.learning.statistics import ModelSums
from controlplane.policy.priors import PRIORS_VERSION
from headrace_protos.headrace.v1 import calibration_pb2

_log = logging.getLogger(__name__)


class _Stored(msgspec.Struct):
    priors: int
    sums: msgspec.Raw


def encode(sums: ModelSums) -> bytes:
    stored = _Stored(PRIORS_VERSION, msgspec.Raw(msgspec.msgpack.encode(sums)))
    return zlib.compress(msgspec.msgpack.encode(stored))


def decode(record: Record) -> ModelSums | None:
    """None for what is relative to other priors, and, with a warning, for what this version cannot read."""
    try:
        stored = msgspec.msgpack.decode(zlib.decompress(record.value), type=_Stored)
        if stored.priors != PRIORS_VERSION:
            return None
        return msgspec.msgpack.decode(stored.sums, type=ModelSums)
    except (zlib.error, msgspec.MsgspecError) as error:
        _log.warning("skipping statistics that cannot be read key=%s fault=%s", record.key, error)
        return None


def decode_control(record: Record) -> calibration_pb2.CalibrationControl | None:
    """None, and a warning in the log, for what this version cannot read."""
    try:
        return calibration_pb2.CalibrationControl.FromString(record.value)
    except DecodeError as error:
        _log.warning("skipping a model's calibration control that cannot be read key=%s fault=%s", record.key, error)
        return None
