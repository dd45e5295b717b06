"""Other programs, run to their end."""

from __future__ import annotations

import subprocess
from pathlib import Path


def run(*command: str | Path, cwd: Path | None = None, timeout: float = 120.0) -> str:
    """What the program printed. A failure fails the test with all that it said."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
