"""Follows the file of an issuer's public keys, so that keys are renewed without a restart."""

from __future__ import annotations

import logging
import os

from controlplane.config.settings import JwtSettings
from controlplane.errors import ConfigurationError
from headrace.credentials import tokens_of
from xds_server.gateway import Tokens

_log = logging.getLogger(__name__)


class FollowedKeys:
    """Raises ConfigurationError when there are keys to read and they cannot be read at the start; later, the last good
    ones stay."""

    def __init__(self, jwt: JwtSettings) -> None:
        self._jwt = jwt
        self._seen = self._stamp()
        self._tokens = tokens_of(jwt)

    def tokens(self) -> Tokens | None:
        """What makes clients' tokens count now; None when they are not looked at."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            try:
                self._tokens = tokens_of(self._jwt)
            except ConfigurationError as error:
                _log.error("the keys of tokens cannot be read anew, the last ones stay: %s", error)
            else:
                _log.info("the keys of tokens were read anew file=%s", self._jwt.jwks_file)
        return self._tokens

    def _stamp(self) -> tuple[int, int, int] | None:
        """Changes with the file, also when a link to it leads elsewhere; None when there is none."""
        if self._jwt.jwks_file is None:
            return None
        try:
            found = os.stat(self._jwt.jwks_file)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size
