"""Virtual environments of programs that must not share ours, under .cache/bench of the checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "bench"


def environment(name: str, *requirements: str) -> Path:
    """The folder of an environment with just these packages and what they need; made the first time."""
    folder = CACHE / "environments" / name
    stamp = folder / ".installed"
    wanted = "\n".join(requirements)
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {', '.join(requirements)} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", *requirements], check=True)
        stamp.write_text(wanted)
    return folder
