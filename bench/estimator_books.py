"""Texts that nothing of the token estimate was ever learned from or fitted to: Debian's handbook and reference, GNOME's
help.

    apt-get download debian-handbook debian-reference-zh-cn debian-reference-ja gnome-user-docs
    for package in *.deb; do dpkg-deb -x $package FOLDER; done

Their licences (GPL-2, CC-BY-SA-3.0) allow all use; nothing of them is kept. Code is that of installed packages, which
the requests of `estimator_requests` do not use.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from html import unescape
from pathlib import Path

BOOKS = {
    "english": ("doc/debian-handbook/html/en-US/*.html", "help/C/gnome-help/*.page"),
    "chinese": (
        "doc/debian-handbook/html/zh-CN/*.html",
        "debian-reference/*.zh-cn.html",
        "help/zh_CN/gnome-help/*.page",
    ),
    "japanese": ("doc/debian-handbook/html/ja-JP/*.html", "debian-reference/*.ja.html", "help/ja/gnome-help/*.page"),
    "arabic": ("doc/debian-handbook/html/ar-MA/*.html",),
}
_PARAGRAPH = re.compile(r"<(?:p|div class=\"para\"|desc)(?:\s[^>]*)?>(.*?)</(?:p|div|desc)>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_MOST_CODE = 600  # files


def documents(root: Path, kind: str) -> list[tuple[str, str]]:
    """Name and text of each document of a kind, in the packages unpacked at `root`."""
    if kind == "code":
        return list(_code())
    found = []
    for pattern in BOOKS[kind]:
        for path in sorted((root / "usr" / "share").glob(pattern)):
            markup = path.read_text("utf-8")
            paragraphs = [" ".join(unescape(_TAG.sub("", part)).split()) for part in _PARAGRAPH.findall(markup)]
            text = "\n".join(part for part in paragraphs if len(part) > 15 and _is_written_in(kind, part))
            found.append((f"{path.parent.name} {path.name}", text))
    return found


def _is_written_in(kind: str, text: str) -> bool:
    """Some paragraphs are not translated."""
    foreign = sum(ord(char) >= 0x370 for char in text) / len(text)
    return foreign < 0.02 if kind == "english" else foreign >= 0.4


def _code() -> Iterable[tuple[str, str]]:
    for folder in (Path(entry) for entry in sys.path if entry.endswith("-packages")):
        for path in sorted(folder.glob("*/*.py"))[:_MOST_CODE]:
            yield f"{path.parent.name}/{path.name}", path.read_text("utf-8", "replace")[:200_000]
