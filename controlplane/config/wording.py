"""What is said about a fault: what is wrong, what to do. Values of settings that may hold a secret are never shown."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence

from pydantic_core import ErrorDetails

from controlplane.config.document import Path, spell

_MAY_BE_SECRET = re.compile(r"password|secret|credential|tokens?_file|keys?(_file)?$", re.IGNORECASE)
# A user and password in a URL, or a password among its parameters.
_HOLDS_SECRET = re.compile(r"//[^/\s]*@|pass(?:word|wd)?=|token=|key=", re.IGNORECASE)
_LONGEST_SHOWN = 60

# By pydantic's error type (https://docs.pydantic.dev/latest/errors/validation_errors/): what is wrong, and what to do.
_PHRASES = {
    "int_type": ("must be a whole number", ""),
    "float_type": ("must be a number", ""),
    "finite_number": ("must be a finite number", ""),
    "bool_type": ("must be true or false", ""),
    "string_type": ("must be text", "; put it in quotes if it is meant as text"),
    "greater_than": ("must be greater than {gt}", ""),
    "greater_than_equal": ("must be at least {ge}", ""),
    "less_than": ("must be less than {lt}", ""),
    "less_than_equal": ("must be at most {le}", ""),
    "string_too_short": ("must have at least {min_length} characters", ""),
    "string_too_long": ("must have at most {max_length} characters", ""),
    "too_short": ("must have at least {min_length} items", ""),
    "too_long": ("must have at most {max_length} items", ""),
    "string_pattern_mismatch": ("must match the pattern {pattern}", ""),
    "dataclass_type": ("must be a section with settings of its own", ""),
    "mapping_type": ("must be a section of names and values", "; write {} for none"),
    "dict_type": ("must be a section of names and values", "; write {} for none"),
    "tuple_type": ("must be a list", "; write [] for none, [a, b] for two"),
    "missing": ("is missing and has no default", ""),
}
_WITHOUT_VALUE = {"finite_number", "string_too_short", "string_too_long", "too_short", "too_long", "missing"}


def say(details: ErrorDetails, path: Path) -> str:
    """The message for one of pydantic's errors."""
    kind, limits = details["type"], details.get("ctx", {})
    got = _shown(details["input"], path)
    if kind == "value_error":
        return f"{got} {limits['error']}".lstrip()
    if kind in {"enum", "literal_error"}:
        return _say_choice(str(details["input"]), re.findall(r"'([^']*)'", str(limits["expected"])), got)
    if kind in {"too_short", "string_too_short"} and limits["min_length"] == 1:
        return "must not be empty"
    if kind in _PHRASES:
        what, advice = _PHRASES[kind]
        what = what.format(**limits)
        return what + (f", not {got}" if got and kind not in _WITHOUT_VALUE else "") + advice
    message = details["msg"]
    return message[:1].lower() + message[1:]


def _say_choice(stated: str, allowed: Sequence[str], got: str) -> str:
    near = difflib.get_close_matches(stated, allowed, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"must be one of {', '.join(allowed)}, not {got}{hint}"


def say_unknown(name: str, siblings: Sequence[str], everywhere: Sequence[Path]) -> str:
    """The message for a setting that does not exist: the nearest name, else where that name exists, else all names."""
    near = difflib.get_close_matches(name, siblings, n=1, cutoff=0.7)
    if near and near[0].endswith("_file"):
        hint = f"did you mean {near[0]}? Secrets are read from files of their own"
    elif near:
        hint = f"did you mean {near[0]}?"
    elif elsewhere := [path for path in everywhere if path[-1] == name]:
        hint = f"did you mean {' or '.join(map(spell, elsewhere))}?"
    else:
        hint = f"known here: {', '.join(siblings)}"
    return f"is no setting; {hint}"


def _shown(value: object, path: Path) -> str:
    """A short picture of a value as YAML would write it; empty when it is better not shown."""
    of_secret = any(isinstance(step, str) and _MAY_BE_SECRET.search(step) for step in path)
    if of_secret or (isinstance(value, str) and _HOLDS_SECRET.search(value)):
        return ""
    match value:
        case dict():
            return "a section"
        case list():
            return "a list"
        case str() if len(value) > _LONGEST_SHOWN:
            return repr(value[:_LONGEST_SHOWN] + "...")
        case None | bool() | int() | float():
            return json.dumps(value)[:_LONGEST_SHOWN]
        case _:
            return repr(value)
