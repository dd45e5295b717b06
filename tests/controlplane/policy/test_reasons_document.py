"""docs/reasons.md names every reason and every code of an error, each in one row, and none that there is not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from controlplane.model import Reason
from xds_server.local_replies import CODES
from xds_server.routes import UNDECIDED

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = (ROOT / "docs" / "reasons.md").read_text()


def rows(heading: str) -> list[str]:
    """The first column of the table below a heading."""
    section = DOCUMENT.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([a-z_]+)` \|", section, re.MULTILINE)


def codes_in_the_source() -> Iterator[str]:
    """Of each `Refusal(status, type, code, ...)`, whose code stands there or has a name in its file."""
    for folder in ("controlplane", "envoy/ext_proc"):
        for file in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(file.read_text())
            named = {
                target.id: line.value
                for line in tree.body
                if isinstance(line, ast.Assign)
                for target in line.targets
                if isinstance(target, ast.Name)
            }
            for call in ast.walk(tree):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Refusal":
                    code = call.args[2]
                    value = named.get(code.id) if isinstance(code, ast.Name) else code
                    assert isinstance(value, ast.Constant), f"{file}:{call.lineno} has a code that cannot be told"
                    yield str(value.value)


def test_every_reason_has_its_row() -> None:
    assert sorted(rows("Reasons")) == sorted(Reason)


def test_every_code_of_an_error_has_its_row() -> None:
    assert sorted(rows("Codes of errors")) == sorted({*codes_in_the_source(), *CODES, UNDECIDED})
