"""The allocator keeps what bodies are made of, in a process of its own."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_FAULTS = """
import resource
from headrace.allocation import set_for_bodies
{set}
def one():
    return bytes(1 << 20)[1:]
for _ in range(5): one()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50): one()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(setting: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS.format(set=setting)], capture_output=True, text=True, timeout=60, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's allocator")
def test_large_bodies_one_after_the_other_cause_no_page_faults() -> None:
    assert faults("set_for_bodies()") < 50 < faults("")
