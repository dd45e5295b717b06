"""Quantities as people write them: `250ms`, `30s`, `5m`, `10MiB`. Numbers alone are seconds and bytes."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)\s*")

_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_duration(value: object) -> object:
    """Seconds of a text such as `30s`; anything but text is returned as it is. Raises ValueError."""
    if not isinstance(value, str):
        return value
    match = _NUMBER_AND_UNIT.fullmatch(value)
    if match is None or match[2] not in _SECONDS:
        raise ValueError(
            "must be a duration; write seconds as a number, or a number with ms, s, m, h or d, such as 30s"
        )
    if match[2] == "ms":
        return float(match[1]) / 1000  # a division is exact to the last digit where a factor of 0.001 is not
    return float(match[1]) * _SECONDS[match[2]]


def parse_size(value: object) -> object:
    """Bytes of a text such as `10MiB`; anything but text is returned as it is. Raises ValueError."""
    if not isinstance(value, str):
        return value
    match = _NUMBER_AND_UNIT.fullmatch(value)
    if match is None or match[2] not in _BYTES:
        raise ValueError("must be a size; write bytes as a number, or a number with KiB, MiB, GiB, kB, MB or GB")
    size = float(match[1]) * _BYTES[match[2]]
    if not size.is_integer():
        raise ValueError("must be a whole number of bytes")
    return int(size)


Seconds = Annotated[float, BeforeValidator(parse_duration)]
Bytes = Annotated[int, BeforeValidator(parse_size)]
