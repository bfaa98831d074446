"""Loadable actor sources of ``AsyncioBase``: zip files of modules, known by their hash.

As everywhere in Thespian a source can be used once an actor, the *source authority*, has validated
it; without an authority no source can.

As on Thespian's process bases, no actor can be made of an unloaded source, while actors that were made of it
go on and may import the rest of it: its modules are forgotten when the last of these actors has ended.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thespian.actors import LoadedSource, UnloadedSource, ValidatedSource, ValidateSource
from thespian.system.sourceLoader import SourceHashFinder, loadModuleFromHashSource

from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.runtime.ref import Ref

log = logger(__name__)


class Sources:
    """Loaded sources, the actor that validates them, and the actors that are notified of them.

    Args:
        send: sends a message in the system's name.
    """

    def __init__(self, send: Callable[[Ref, Any], None]) -> None:
        self._send = send
        self._zips: dict[str, bytes] = {}
        self._authority: Ref | None = None
        self._listeners: list[Ref] = []
        self._users: Counter[str] = Counter()

    def set_authority(self, ref: Ref) -> None:
        """Let this actor validate sources loaded from now on."""
        self._authority = ref

    def set_listener(self, ref: Ref, is_one: bool) -> None:
        """Tell an actor, or not any more, of sources that come and go."""
        self._listeners = [other for other in self._listeners if other is not ref]
        if is_one:
            self._listeners.append(ref)
            for source_hash in self._zips:
                self._send(ref, LoadedSource(source_hash, ""))

    def load(self, source: Any) -> str:
        """Ask the authority about a zip file, given as a path or a file; return its hash."""
        data = source.read() if hasattr(source, "read") else Path(source).read_bytes()
        source_hash = hashlib.md5(data, usedforsecurity=False).hexdigest()  # Thespian's choice
        if self._authority is not None:
            self._send(self._authority, ValidateSource(source_hash, data))
        return source_hash

    def validated(self, message: ValidatedSource) -> None:
        """Take in a source that the authority has validated."""
        source_hash, data = message.sourceHash, message.sourceZip
        try:
            SourceHashFinder(source_hash, lambda content: content, data).getZipNames()
        except Exception:
            log.exception("validated source is no zip file hash=%s", source_hash)
            return
        self._zips[source_hash] = data
        for ref in self._listeners:
            self._send(ref, LoadedSource(source_hash, ""))

    def unload(self, source_hash: str) -> None:
        """Let no more actors be made of a source."""
        if self._zips.pop(source_hash, None) is not None:
            for ref in self._listeners:
                self._send(ref, UnloadedSource(source_hash, ""))
        self._forget_modules(source_hash)

    def use(self, source_hash: str) -> Callable[[object], None]:
        """Count one more actor of a source; the function returned counts it out at its end."""
        self._users[source_hash] += 1

        def ended(_: object) -> None:
            self._users[source_hash] -= 1
            self._forget_modules(source_hash)

        return ended

    def _forget_modules(self, source_hash: str) -> None:
        """Forget the modules of an unloaded source once no actor uses them."""
        if source_hash in self._zips or self._users[source_hash]:
            return
        del self._users[source_hash]
        finders: list[Any] = list(sys.meta_path)
        for finder in [f for f in finders if getattr(f, "srcHash", None) == source_hash]:
            root = finder.hashRoot()
            for name in [name for name in sys.modules if name.startswith(root)]:
                del sys.modules[name]
            sys.meta_path.remove(finder)

    def unload_all(self) -> None:
        for source_hash in list(self._zips):
            self.unload(source_hash)

    def find(self, source_hash: str) -> Callable[[str, str], Any]:
        """Return a function that finds a class of a source by the names of module and class."""

        def find_class(module: str, name: str) -> Any:
            return loadModuleFromHashSource(source_hash, self._zips, module, name)

        return find_class
