"""What the machine is, and what its processors did: for whom, and how much for programs that are not ours."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Reading:
    """CPU seconds since some time in the past: of all processors, of what ran on them, stolen by other virtual
    machines; of each process; and of ourselves and the programs that we ran to their end."""

    total: float
    busy: float
    stolen: float
    processes: Mapping[int, float]
    own: float


@dataclass(frozen=True, slots=True)
class Spent:
    """What happened between two readings. `foreign` and `stolen` are shares of all processors' time."""

    processes: Mapping[int, float]
    foreign: float
    stolen: float


def read(pids: Iterable[int]) -> Reading:
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, idle, waiting, irq, soft_irq, stolen = (int(field) / _TICKS for field in fields)
    busy = user + nice + system + irq + soft_irq
    own = sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    processes = {pid: seconds for pid in pids if (seconds := _cpu_seconds(pid)) is not None}
    return Reading(busy + idle + waiting + stolen, busy, stolen, processes, own)


def spent(before: Reading, after: Reading) -> Spent:
    total = max(after.total - before.total, 1e-9)
    processes = {pid: after.processes[pid] - before.processes.get(pid, 0.0) for pid in after.processes}
    ours = sum(processes.values()) + after.own - before.own
    return Spent(processes, max(0.0, after.busy - before.busy - ours) / total, (after.stolen - before.stolen) / total)


def memory(pid: int) -> float:
    """Resident megabytes; 0 for a process that has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1e6
    except OSError:
        return 0.0


def wait_until_quiet(pids: Iterable[int], busiest: float, seconds: float) -> float:
    """Waits up to `seconds` until programs that are not ours take less than the share `busiest` of the processors for
    half a second. Returns the share that they last took."""
    pids = tuple(pids)
    deadline = time.monotonic() + seconds
    while True:
        before = read(pids)
        time.sleep(0.5)
        now = spent(before, read(pids))
        share = now.foreign + now.stolen
        if share < busiest or time.monotonic() > deadline:
            return share


def description() -> str:
    """Processors, memory, kernel, Python."""
    info = Path("/proc/cpuinfo").read_text()
    model = next((line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")), "?")
    gib = os.sysconf("SC_PHYS_PAGES") * _PAGE / 2**30
    virtual = ", virtual" if " hypervisor" in info else ""
    return (
        f"{os.cpu_count()} processors ({model}{virtual}), {gib:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def _cpu_seconds(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / _TICKS
