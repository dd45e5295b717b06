"""What stands for ids that are kept and shown nowhere themselves."""

from __future__ import annotations

from hashlib import blake2b


def session_digest(session: str) -> str:
    """What stands for a session's id wherever decisions are kept or shown: it tells sessions apart and names none.

    It is of the id alone, so that whoever knows an id finds its decisions without knowing how they were made.
    """
    return "id:" + blake2b(session.encode(errors="replace"), digest_size=16).hexdigest()
