"""Tables that stay readable where the terminal is narrow: what matters least is left out, the rest not broken up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

# What wraps is broken between words, and within those that are longer than this.
LONGEST_WORD = 30
# No narrower than this is a column that wraps.
NARROWEST = 18
_GAP = 1


@dataclass(frozen=True, slots=True)
class Column:
    """`rank` 0 is always shown; of the others the highest goes first. Only what `wraps` is broken up. `right` is where
    numbers stand."""

    name: str
    rank: int = 0
    wraps: bool = False
    right: bool = False


def show(console: Console, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Cells are markup, one for each column. Says which columns are left out."""
    rows = list(rows)
    if not rows:
        console.print("none")
        return
    cells = [[column.name, *(row[place] for row in rows)] for place, column in enumerate(columns)]
    least = [_least(column, texts) for column, texts in zip(columns, cells, strict=True)]
    shown = _shown(columns, least, console.width)
    widths = _widened(shown, least, [_width(texts) for texts in cells], console.width)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for place in shown:
        justify: Literal["left", "right"] = "right" if columns[place].right else "left"
        table.add_column(columns[place].name, overflow="fold", width=widths[place], justify=justify)
    for row in rows:
        table.add_row(*(row[place] for place in shown))
    console.print(table)
    if left_out := [column.name for place, column in enumerate(columns) if place not in shown]:
        console.print(
            f"[dim]not shown: {', '.join(left_out)}; a wider terminal has room, --json has all[/]", highlight=False
        )


def _shown(columns: Sequence[Column], least: Sequence[int], room: int) -> list[int]:
    shown = list(range(len(columns)))
    for place in sorted(shown, key=lambda place: -columns[place].rank):
        if columns[place].rank == 0 or sum(least[other] + _GAP for other in shown) <= room + _GAP:
            break
        shown.remove(place)
    return shown


def _least(column: Column, cells: Iterable[str]) -> int:
    """The narrowest that its cells are readable in."""
    if not column.wraps:
        return _width(cells)
    words = (cell_len(word) for line in _lines(cells) for word in line.split())
    return min(_width(cells), max([NARROWEST, *(word for word in words if word <= LONGEST_WORD)]))


def _widened(shown: Sequence[int], least: Sequence[int], most: Sequence[int], room: int) -> Mapping[int, int]:
    """The width of each column, by its place: those on the left get first what is to spare."""
    spare = room + _GAP - sum(least[place] + _GAP for place in shown)
    widths = {}
    for place in shown:
        more = max(0, min(spare, most[place] - least[place]))
        widths[place] = least[place] + more
        spare -= more
    return widths


def _width(cells: Iterable[str]) -> int:
    return max(map(cell_len, _lines(cells)), default=0)


def _lines(cells: Iterable[str]) -> Iterator[str]:
    for cell in cells:
        yield from Text.from_markup(cell).plain.splitlines()
