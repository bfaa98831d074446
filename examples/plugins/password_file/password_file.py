"""A back end: users and passwords in the file $PASSWORDS, a line each; they may use what their names begin."""

import asyncio
import os
from pathlib import Path

from leveret.broker.vhost.auth.auth_backends import AuthBackend


class PasswordFile(AuthBackend):
    async def login(self, name, password, peer):
        text = await asyncio.to_thread(Path(os.environ["PASSWORDS"]).read_text)
        is_known = password is not None and f"{name}:{password.decode()}" in text.splitlines()
        return [] if is_known else None

    async def may_enter(self, user, vhost):
        return vhost == "/"

    async def may(self, user, vhost, kind, name, permission):
        return name.startswith(f"{user.name}.") or name == "amq.default"
