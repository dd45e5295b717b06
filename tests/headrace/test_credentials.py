"""The files that settings name for tokens and certificates."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.config.settings import CallerSettings, ExtProcSettings, JwtSettings, TlsSettings
from controlplane.errors import ConfigurationError
from headrace.credentials import filter_keys, read_tokens, server_tls, target, tokens_of
from support.certificates import Authority


def test_one_token_per_line_without_blank_lines_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# nodes\n\n  first  \nsecond\r\n")
    assert read_tokens("x", str(file)) == ("first", "second")
    assert read_tokens("x", None) == ()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "holds no token; write one per line"),
        (b"# none\n\n", "holds no token; write one per line"),
        (b"two words\n", "holds a token with blanks or other than printable ASCII"),
        ("geheimnis-ü\n".encode(), "holds a token with blanks or other than printable ASCII"),
        (b"\xff\xfe\n", "holds a token with blanks or other than printable ASCII"),
    ],
)
def test_a_file_without_usable_tokens_is_refused_without_showing_them(
    tmp_path: Path, content: bytes, fault: str
) -> None:
    file = tmp_path / "tokens"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError) as refused:
        read_tokens("caller.token_file", str(file))
    assert refused.value.faults == (f"caller.token_file: {file} {fault}",)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"caller\.token_file: .*none cannot be read: No such file"):
        target("127.0.0.1:1", CallerSettings(token_file=str(tmp_path / "none")))


def test_a_target_never_shows_its_token(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("secret-1\nsecret-2\n")
    made = target("127.0.0.1:1", CallerSettings(token_file=str(file)))
    assert made.metadata == (("authorization", "Bearer secret-1"),)
    assert "secret" not in f"{made} {made!r}"


def test_certificates_are_read(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = map(str, authority.issue("server"))
    tls = server_tls(TlsSettings(certificate, key, str(authority.file)))
    assert tls is not None
    assert tls.client_ca == authority.file.read_bytes()
    assert server_tls(TlsSettings()) is None
    made = target("127.0.0.1:1", CallerSettings(ca_file=str(authority.file), cert_file=certificate, key_file=key))
    assert made.tls is not None
    assert made.tls.ca == authority.file.read_bytes()


def test_what_is_no_certificate_is_told_by_its_setting(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = map(str, authority.issue("server"))
    _, other_key = map(str, authority.issue("other"))
    junk = tmp_path / "junk"
    junk.write_text("no certificate")
    for tls, fault in (
        (TlsSettings(str(junk), key), "control_plane.tls.cert_file: .* are no PEM certificate and its key"),
        (TlsSettings(certificate, other_key), "control_plane.tls.cert_file: .* are no PEM certificate and its key"),
        (TlsSettings(certificate, str(tmp_path / "none")), "control_plane.tls.key_file: .*none cannot be read"),
        (TlsSettings(certificate, key, str(junk)), "control_plane.tls.client_ca_file: .*junk holds no PEM certificate"),
    ):
        with pytest.raises(ConfigurationError, match=fault):
            server_tls(tls)
    with pytest.raises(ConfigurationError, match=r"caller\.ca_file: .*junk holds no PEM certificate"):
        target("127.0.0.1:1", CallerSettings(ca_file=str(junk)))


def test_the_filters_keys_are_read_from_their_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s" * 32 + "\n")
    (tmp_path / "engine").write_text("# of vLLM\nengine-key\n")
    files = ExtProcSettings(key_secret_file=f"{tmp_path}/secret", engine_key_file=f"{tmp_path}/engine")
    keys = filter_keys(files)
    assert keys.secret == b"s" * 32
    assert keys.shown_to_engines == (("authorization", "Bearer engine-key"),)
    assert filter_keys(ExtProcSettings()).shown_to_engines == ()


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"keys": []}', '{"keys": {}}', "-----BEGIN PUBLIC KEY-----"])
def test_a_file_that_is_no_set_of_keys_is_refused_before_envoy_sees_it(tmp_path: Path, content: str) -> None:
    (tmp_path / "jwks").write_text(content)
    with pytest.raises(ConfigurationError) as refused:
        tokens_of(JwtSettings(jwks_file=f"{tmp_path}/jwks"))
    assert "gateway.jwt.jwks_file" in str(refused.value)


def test_without_keys_of_an_issuer_no_token_is_looked_at() -> None:
    assert tokens_of(JwtSettings()) is None
    fetched = tokens_of(JwtSettings(jwks_url="https://issuer.test/keys", issuer="i"))
    assert fetched is not None
    assert (fetched.keys, fetched.keys_url, fetched.issuer) == ("", "https://issuer.test/keys", "i")
