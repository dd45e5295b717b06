"""Child processes: started, stopped, and gone with their parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane import child
from support.waiting import until

PARENT = """
import asyncio, sys
from controlplane import child

async def main():
    started = await child.start([sys.executable, "-c", sys.argv[1]], stdout=None)
    print(started.pid, flush=True)
    await started.wait()

asyncio.run(main())
"""


def is_running(pid: int) -> bool:
    try:
        # A process that has ended stays a zombie until its new parent looks after it.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


async def test_it_runs_the_program_with_its_environment_and_output(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        process = await child.start(["sh", "-c", "echo $WORD; echo err >&2; exit 3"], env={"WORD": "hi"}, stdout=out)
        assert await process.wait() == 3
    assert (tmp_path / "out").read_text() == "hi\nerr\n"


async def test_a_program_that_does_not_exist_fails_at_once_and_says_so() -> None:
    process = await child.start(["/no/such/program"], stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 1
    assert output == b"/no/such/program: No such file or directory\n"


async def test_stopping_asks_first() -> None:
    process = await child.start(["sleep", "60"])
    assert await child.stop(process, grace=10) == -signal.SIGTERM
    assert await child.stop(process, grace=10) == -signal.SIGTERM


async def test_what_does_not_stop_is_killed_with_its_own_children() -> None:
    script = "trap '' TERM; sleep 60 & echo $!; wait; sleep 60"
    process = await child.start(["sh", "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    grandchild = int(await process.stdout.readline())
    assert await child.stop(process, grace=0.1) == -signal.SIGKILL
    await until(lambda: not is_running(grandchild))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the children of a killed parent")
async def test_a_child_gets_sigterm_when_its_parent_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    program = f"""
import pathlib, signal, sys
def end(*_): pathlib.Path({str(mark)!r}).write_text("ended"); sys.exit()
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
signal.pause()
"""
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, program, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    lines = {(await parent.stdout.readline()).strip() for _ in range(2)}
    (pid,) = (int(line) for line in lines - {b"ready"})
    parent.kill()
    await parent.wait()
    await until(lambda: not is_running(pid))
    assert mark.read_text() == "ended"


async def test_ctrl_c_in_the_terminal_does_not_reach_it() -> None:
    process = await child.start(["sleep", "60"])
    assert os.getpgid(process.pid) != os.getpgid(0)
    await child.stop(process, grace=10)
