"""How many processors this process may use: those that it is bound to, and of these what its control groups allow.

Linux tells both; elsewhere there are as many as the machine has.
https://docs.kernel.org/admin-guide/cgroup-v2.html (cpu.max),
https://docs.kernel.org/scheduler/sched-bwc.html (cpu.cfs_quota_us, of version 1).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def available_processors() -> float:
    """At least a part of one: a group may be allowed half a processor's time."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(bound, quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")))


def quota(membership: Path, mounted: Path) -> float:
    """The processors that control groups allow; infinity where none is limited.

    `membership` says which groups the process is in, and at `mounted` they are. A group can use no more than any of
    those above it. A container often sees its own group as the top and does not find itself below: then the top counts.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return float("inf")
    return min((limit for line in lines for limit in _limits(line, mounted)), default=float("inf"))


def _limits(line: str, mounted: Path) -> Iterator[float]:
    """Of the groups that a line of /proc/PID/cgroup names, `number:controllers:path`; version 2 has no controllers."""
    _, controllers, path = line.split(":", 2)
    if controllers and "cpu" not in controllers.split(","):
        return
    top = mounted / controllers
    group = PurePosixPath(path)
    for each in (group, *group.parents):
        folder = top / each.relative_to("/")
        try:
            if controllers:
                allowed, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            else:
                allowed, period = (folder / "cpu.max").read_text().split()
        except OSError:
            continue
        if allowed != "max" and int(allowed) > 0:
            yield int(allowed) / int(period)
