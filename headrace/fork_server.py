"""`python -m headrace.fork_server`: has imported what a filter worker needs, and makes one by a fork when asked.

A worker so takes milliseconds of CPU to start. By itself it takes a second, nearly all to import, and a machine whose
worker died under load may not have that: requests then wait behind the start of the one that is to take them.

`headrace up` asks, at the socket that is our standard input (`forking.py`). A worker becomes its child, as if it had
started it itself, and so outlives us. There are no threads here and no event loop, so that a fork of it is whole.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import sys
import time
from importlib import import_module

from headrace import cli

IMPORTED = "headrace.commands.ext_proc"
MOST_BYTES = 1 << 16
READY = b"ready"  # what is said once, before any process id

# https://man7.org/linux/man-pages/man2/prctl.2.html
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def main() -> None:
    """Returns in each worker once it has ended, and in the server when nobody can ask any more."""
    asking = socket.socket(fileno=os.dup(0))
    parent = os.getppid()
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    import_module(IMPORTED)
    gc.collect()
    gc.freeze()  # what a collection does not look at stays shared with the workers
    asking.send(READY)
    while asked := asking.recv(MOST_BYTES):
        name, log, *argv = json.loads(asked)
        if _is_new_child_of_our_parent():
            os.setsid()
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                sys.exit(f"{name}: headrace up has ended")
            prctl(_PR_SET_NAME, name.encode())
            asking.send(str(os.getpid()).encode())
            asking.close()
            _redirect(log)
            sys.argv = ["headrace", *argv]
            cli.main()
            return


def _is_new_child_of_our_parent() -> bool:
    """Forks. False here; true in the new process, whose parent is ours if that is a subreaper now: the one between has
    ended by then."""
    if between := os.fork():
        os.waitpid(between, 0)
        return False
    between = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == between:
        time.sleep(0.001)
    return True


def _redirect(log: str | None) -> None:
    """Reads nothing, and writes to `log`; without one, where the server does."""
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    if log is not None:
        with open(log, "ab") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)


if __name__ == "__main__":
    main()
