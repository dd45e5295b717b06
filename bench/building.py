"""Builds the load generator and the engine of `native/`, once for each version of their source.

Both are in C: they share the machine with what is measured, and in Python each of their turns would cost as much as
that of a proxy. Where no C compiler is installed, the one of the package `ziglang` is (100 MB).
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from environments import CACHE, environment

SOURCES = Path(__file__).with_name("native")
COMPILER = "ziglang==0.17.1"
OPTIONS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")


def built(name: str) -> Path:
    """The program of `native/NAME.c`."""
    text = (SOURCES / f"{name}.c").read_bytes() + (SOURCES / "http.h").read_bytes()
    program = CACHE / "native" / f"{name}-{hashlib.sha256(text).hexdigest()[:12]}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        draft = program.with_suffix(".new")
        subprocess.run([*_compiler(), *OPTIONS, "-o", draft, SOURCES / f"{name}.c", "-lm"], check=True)
        draft.rename(program)
    return program


def _compiler() -> list[str]:
    if found := shutil.which("cc"):
        return [found]
    return [str(environment("zig", COMPILER) / "bin" / "python"), "-m", "ziglang", "cc"]
