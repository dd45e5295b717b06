"""Errors that Headrace raises, by what a person can do about them.

HeadraceError
  ConfigurationError      a file or flag is wrong; carries every fault found, each with its place
  RegistrationError       a node cannot be registered as it describes itself; carries every fault found
  AddressTakenError       a node cannot be registered while another live one holds its address
  UnknownSessionError     a node session that is not, or no longer, registered
  OverrideError           a pool's load cannot be overridden as asked; carries every fault found
  UnknownPoolError        a pool that the fleet does not have, or whose load nobody has overridden
  UnknownModelError       a model of whose tokens nothing is known, or whose calibration is not pinned
  UnavailableError        etcd or a control plane cannot be reached now; a retry may succeed
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# In a message; a fleet may have hundreds.
_MOST_NAMED = 10


class HeadraceError(Exception):
    """The root of all errors that Headrace raises on purpose."""


class _FaultsError(HeadraceError):
    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


class ConfigurationError(_FaultsError):
    """Every fault of a configuration, each as `file:line: path: what is wrong and what to do`."""


class RegistrationError(_FaultsError):
    """Every fault of a registration, each as `field: what is wrong and what to do`."""


class AddressTakenError(HeadraceError):
    """Another live node holds the address; `node_id` is that node's."""

    def __init__(self, address: str, node_id: str) -> None:
        super().__init__(
            f"address {address} is held by node {node_id}; deregister that node, or wait until its lease has run out"
        )
        self.address = address
        self.node_id = node_id


class UnknownSessionError(HeadraceError):
    """The node session is not registered: its lease ran out, or it was replaced. Register again."""


class OverrideError(_FaultsError):
    """Every fault of an override, each as `field: what is wrong and what to do`."""


class _UnknownError(HeadraceError):
    """`asked` is the name that is not known, `known` are those that there are."""

    def __init__(self, what: str, asked: str, known: Iterable[str]) -> None:
        names = tuple(known)
        near = get_close_matches(asked, names, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        shown = ", ".join(names[:_MOST_NAMED]) or "none"
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        super().__init__(f"{what}; {hint}there are: {shown}{more}")
        self.known = names


class UnknownPoolError(_UnknownError):
    """No such pool, or none that an operator has overridden."""


class UnknownModelError(_UnknownError):
    """No model of this name is served or has been learned of, or none that an operator has pinned."""


class UnavailableError(HeadraceError):
    """A service that is needed cannot be reached now."""
