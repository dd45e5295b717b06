"""Context classes: which one a node's context falls in, and how the classes are ordered."""

from __future__ import annotations

from controlplane.policy.settings import ContextClass


def context_class_of(max_context: int, classes: tuple[ContextClass, ...]) -> str:
    """The name of the first class that holds `max_context` tokens; of the last one when none does."""
    for entry in classes:
        if entry.max_context is None or max_context <= entry.max_context:
            return entry.name
    return classes[-1].name
