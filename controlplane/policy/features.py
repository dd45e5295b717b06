"""The features of a request that its prompt's tokens are estimated from: counts of its text and of what frames it.

They are what is sent to the control plane with the usage that the engine reports, so that it can learn; they hold
nothing of the text itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.model import Category
from controlplane.policy.text import TextCounts, categorise

# Of a vector, in order: what a chat template adds, then the text.
FRAMING = ("request", "messages", "tool_lists", "tools", "calls", "images")
FEATURES = (*FRAMING, *TextCounts._fields[1:])
Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Features:
    """Of one request. `text` covers all prompt text, definitions of tools and arguments of calls, without data-URIs.

    `calls` are tool calls in the conversation; `token_ids` counts the tokens of a prompt that is given as such.
    """

    text: TextCounts
    messages: int = 0
    tools: int = 0
    calls: int = 0
    images: int = 0
    token_ids: int = 0

    @property
    def category(self) -> Category:
        return categorise(self.text.classes)

    @property
    def vector(self) -> Vector:
        """One number per name in `FEATURES`."""
        tool_lists = 1 if self.tools else 0
        return (1, self.messages, tool_lists, self.tools, self.calls, self.images, *self.text[1:])
