"""Compiles the simulator's inner functions with numba, once per machine and version of the package."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# The files of what is compiled.
_COMPILED = ("compiling.py", "state.py", "batching.py", "waiting.py", "loop.py")
# Its own types know neither all of its options nor its configuration.
_numba: Any = numba


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function as machine code, for other compiled ones alone: what Python would call it by is half of the work."""
    compiler = _numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy")
    return cast("Callable[Arguments, Result]", compiler(function))


def entrance(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function as machine code, with all that it calls, for Python. It is kept between processes.

    Numba looks only at the file of a function to tell whether what it kept is still true, and not at those of the
    functions that it calls: the folder is therefore named by what all of them say. Where there is no place to keep it,
    each process compiles.
    """
    folder = kept_in(os.environ)
    before, _numba.config.CACHE_DIR = _numba.config.CACHE_DIR, str(folder or "")
    try:
        compiler = _numba.njit(cache=folder is not None, error_model="numpy")
        return cast("Callable[Arguments, Result]", compiler(function))
    finally:
        _numba.config.CACHE_DIR = before


def kept_in(environment: Mapping[str, str]) -> Path | None:
    """The folder of machine code, made if need be; None where no file can be written."""
    try:
        folder = _folder(environment) / _digest()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # the latter of a user who has no home
        return None
    return folder if os.access(folder, os.W_OK) else None


def _folder(environment: Mapping[str, str]) -> Path:
    chosen = environment.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "simulation"


@cache
def _digest() -> str:
    digest = hashlib.sha256()
    for name in _COMPILED:
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()[:16]
