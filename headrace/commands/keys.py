"""`headrace keys`: makes API keys of tenants. Nothing is kept: the key is shown once, its digest goes to the policy."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from controlplane.config.load import load_unheld
from controlplane.config.settings import Settings
from controlplane.errors import ConfigurationError
from controlplane.policy.access import KEY_PREFIX, key_digest
from headrace.commands.options import ConfigFile, read_text
from headrace.credentials import key_secret

KEY_BYTES = 32

keys = typer.Typer(no_args_is_help=True, add_completion=False, help="Make API keys.")


@keys.callback()
def _group() -> None:
    """A group of one command for now; without a callback typer would run it by the group's name."""


@keys.command("new")
def new(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's name.")],
    config: ConfigFile = None,
) -> None:
    """Make an API key: its only copy, for the tenant, and its digest, for the policy.

    Give a tenant a second key before you take the first one away.
    """
    # Tenants without keys break a rule that this is to mend.
    settings = Settings() if config is None else load_unheld(read_text(config), str(config))
    secret = key_secret(settings.ext_proc)
    if secret is None:
        raise ConfigurationError(
            ["ext_proc.key_secret_file: is needed to make keys; write `openssl rand -hex 32` into a file and name it"]
        )
    key = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    typer.echo(f"key of {tenant}, shown only now:\n\n    {key}\n")
    typer.echo("add its digest to the tenant under policy.tenants.known, beside those that are to go on counting:\n")
    typer.echo(f"    - name: {tenant}\n      keys: [{key_digest(key, secret)}]")
