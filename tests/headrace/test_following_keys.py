"""Public keys of an issuer that are renewed while a control plane runs."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from controlplane.config.settings import JwtSettings
from controlplane.errors import ConfigurationError
from headrace.following_keys import FollowedKeys


def jwks(name: str) -> str:
    return json.dumps({"keys": [{"kty": "oct", "kid": name}]})


def test_keys_are_read_anew_when_their_file_has_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(jwks("old"))
    followed = FollowedKeys(JwtSettings(jwks_file=str(file)))
    before = followed.tokens()
    assert before is not None
    assert before is followed.tokens()
    with caplog.at_level(logging.ERROR):
        for broken in ("{", ""):
            file.write_text(broken)
            assert followed.tokens() is before
            assert followed.tokens() is before
        file.unlink()
        assert followed.tokens() is before
    assert len(caplog.records) == 3
    file.write_text(jwks("a newer one"))
    after = followed.tokens()
    assert after is not None
    assert "a newer one" in after.keys


def test_without_a_file_there_is_nothing_to_follow(tmp_path: Path) -> None:
    assert FollowedKeys(JwtSettings()).tokens() is None
    assert FollowedKeys(JwtSettings(jwks_url="https://issuer.test/keys")).tokens() is not None
    with pytest.raises(ConfigurationError):
        FollowedKeys(JwtSettings(jwks_file=str(tmp_path / "none")))
