"""What affinity and control groups leave of a machine's processors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.processors import available_processors, quota

UNLIMITED = float("inf")


def groups(folder: Path, membership: str, files: dict[str, str]) -> tuple[Path, Path]:
    """As in /proc and below /sys/fs/cgroup; `files` by their names there."""
    of_process = folder / "cgroup"
    of_process.write_text(membership)
    mounted = folder / "mounted"
    for name, text in files.items():
        (mounted / name).parent.mkdir(parents=True, exist_ok=True)
        (mounted / name).write_text(text)
    return of_process, mounted


V1 = "8:memory:/box\n1:cpu,cpuacct:/box\n0::/\n"


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, UNLIMITED),
        ("0::/\n", {}, UNLIMITED),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000\n", "a/b/cpu.max": "max 100000\n"}, 2.0),
        ("0::/a/b\n", {"a/cpu.max": "400000 100000\n", "a/b/cpu.max": "50000 100000\n"}, 0.5),
        ("0::/seen/from/outside\n", {"cpu.max": "300000 100000\n"}, 3.0),
        (V1, {"cpu,cpuacct/box/cpu.cfs_quota_us": "250000\n", "cpu,cpuacct/box/cpu.cfs_period_us": "100000\n"}, 2.5),
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, UNLIMITED),
        ("2:cpuset:/\n", {"cpuset/cpu.cfs_quota_us": "100000\n", "cpuset/cpu.cfs_period_us": "100000\n"}, UNLIMITED),
        ("1:name=systemd:/a:b\n0::/x:y\n", {"x:y/cpu.max": "100000 50000\n"}, 2.0),
    ],
)
def test_the_strictest_quota_counts(tmp_path: Path, membership: str, files: dict[str, str], expected: float) -> None:
    assert quota(*groups(tmp_path, membership, files)) == expected


def test_without_control_groups_nothing_is_limited(tmp_path: Path) -> None:
    assert quota(tmp_path / "none", tmp_path) == UNLIMITED


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="of Linux")
def test_processors_that_it_is_not_bound_to_do_not_count() -> None:
    bound = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(bound)})
        assert available_processors() <= 1
    finally:
        os.sched_setaffinity(0, bound)
