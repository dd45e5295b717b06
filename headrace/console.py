"""Where the command line prints for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table


def console() -> Console:
    """At full width where the output is not a terminal, so that a pipe gets every word."""
    made = Console()
    if not made.is_terminal:
        made.width = 2000
    return made


def show_line(line: str, *, markup: bool) -> None:
    """As one line, however long."""
    console().print(line, markup=markup, highlight=False, soft_wrap=True)


def plain_table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def print_table(table: Table, on: Console | None = None) -> None:
    on = on or console()
    on.print(table)
    if not table.rows:
        on.print("none")
