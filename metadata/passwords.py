"""Password hashes in RabbitMQ's form: four bytes of salt, then the digest of salt and password.

Definitions files have the hash in base64, with the name of RabbitMQ's hashing module. MD5 is for hashes of very old
exports; new passwords are hashed with SHA-256.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

SALT_BYTES: Final = 4
SHA256: Final = "rabbit_password_hashing_sha256"
SHA512: Final = "rabbit_password_hashing_sha512"
MD5: Final = "rabbit_password_hashing_md5"

ALGORITHMS: Final = {SHA256: "sha256", SHA512: "sha512", MD5: "md5"}


def hash_password(password: bytes, salt: bytes, algorithm: str = SHA256) -> bytes:
    """Return the hash to store; the password is UTF-8, ValueError unless ``SALT_BYTES`` of salt."""
    if len(salt) != SALT_BYTES:
        raise ValueError(f"salt of {len(salt)} bytes, {SALT_BYTES} are used")
    return salt + _digest(salt + password, algorithm)


def verify_password(password: bytes, stored: bytes, algorithm: str = SHA256) -> bool:
    """Return whether ``password`` belongs to a stored hash, in constant time.

    An empty password and an empty hash never match anything, as in RabbitMQ.
    """
    if not password or len(stored) <= SALT_BYTES or algorithm not in ALGORITHMS:
        return False
    salt = stored[:SALT_BYTES]
    return hmac.compare_digest(stored, salt + _digest(salt + password, algorithm))


def _digest(salted: bytes, algorithm: str) -> bytes:
    return hashlib.new(ALGORITHMS[algorithm], salted, usedforsecurity=False).digest()
