"""An issuer of tokens, for tests: RS256 (https://www.rfc-editor.org/rfc/rfc7518#section-3.3)."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa


@dataclass(frozen=True, slots=True)
class Issuer:
    """`jwks` vouches for `token`. Tokens are of https://issuer.test, for `gateway`, and end in ten minutes."""

    key: rsa.RSAPrivateKey

    @classmethod
    def new(cls) -> Issuer:
        return cls(rsa.generate_private_key(public_exponent=65537, key_size=2048))

    @property
    def jwks(self) -> str:
        public = self.key.public_key().public_numbers()
        numbers = {"n": _number(public.n), "e": _number(public.e)}
        return json.dumps({"keys": [{"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig", **numbers}]})

    def token(self, **claims: Any) -> str:
        """`claims` are added, or stand in for the usual ones."""
        whole = {"iss": "https://issuer.test", "aud": "gateway", "exp": int(time.time()) + 86_400, **claims}
        head = {"alg": "RS256", "kid": "1", "typ": "JWT"}
        signed = f"{_encoded(json.dumps(head).encode())}.{_encoded(json.dumps(whole).encode())}"
        return f"{signed}.{_encoded(self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _number(value: int) -> str:
    return _encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
