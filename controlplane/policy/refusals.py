"""The errors that are answered when no pool gets a request, as OpenAI words them, with what to do."""

from __future__ import annotations

from controlplane.model import FormatTier, Refusal

# A refusal names at most this many of the models that there are.
_MODELS_NAMED = 10


def no_model(models: tuple[str, ...], retry_after: float) -> Refusal:
    if not models:
        return Refusal(
            503,
            "server_error",
            "no_ready_node",
            "No model is being served yet; try again later.",
            retry_after=retry_after,
        )
    return Refusal(
        400,
        "invalid_request_error",
        "missing_model",
        f"The request names no model. Set `model` to one of {_named(models)}.",
        param="model",
    )


def unknown_model(name: str, models: tuple[str, ...]) -> Refusal:
    """The same for a model that the tenant may not use: which ones others have is not told. OpenAI does so too."""
    known = f"Known models are {_named(models)}." if models else "No model is being served yet."
    message = f"The model `{shown_name(name)}` does not exist here, or is not for you. {known}"
    return Refusal(404, "invalid_request_error", "model_not_found", message, param="model")


def no_ready_node(model: str, tier: FormatTier | None, retry_after: float) -> Refusal:
    kind = f" in a {tier.value} format" if tier else ""
    message = f"No node that serves `{model}`{kind} is ready now; try again later."
    return Refusal(503, "server_error", "no_ready_node", message, retry_after=retry_after)


def tier_quiescing(model: str, retry_after: float) -> Refusal:
    message = (
        f"All nodes that serve `{model}` in this session's format have just registered anew and take only new sessions "
        f"for {retry_after:.0f} s more; try again then, or begin a new session."
    )
    return Refusal(503, "server_error", "tier_quiescing", message, retry_after=retry_after)


def shown_name(name: str) -> str:
    """A name from a request, of a length and of characters that do no harm where it is shown."""
    short = name if len(name) <= 100 else f"{name[:100]}..."
    return "".join(char if char.isprintable() else "?" for char in short)


def _named(models: tuple[str, ...]) -> str:
    shown = ", ".join(f"`{model}`" for model in models[:_MODELS_NAMED])
    more = len(models) - _MODELS_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
