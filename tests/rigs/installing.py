"""Virtual environments into which Leveret is installed as a user does it, with and without a C compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika

from rigs.nodes import BrokerUnderTest, serving_by

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13")
OURS = ("LEVERET_COMPILE", "LEVERET_COMPILED", "LEVERET_KERNEL", "LEVERET_LOOP")


def python(version: str) -> Path | None:
    """Return an interpreter of a version that can make virtual environments: on PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{version}")
    found = [*sorted(pyenv.glob(f"{version}.*/bin/python{version}")), *filter(None, [on_path])]
    for each in map(Path, found):
        asked = f"import ensurepip, venv, sys; assert '%d.%d' % sys.version_info[:2] == '{version}'"
        if not subprocess.run([each, "-c", asked], capture_output=True, check=False).returncode:
            return each
    return None


def copy_of_the_checkout(to: Path) -> Path:
    """Copy the committed and the changed files, so that the checkout stays as it is."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.split(b"\0")
    for raw in filter(None, listed):
        relative = Path(os.fsdecode(raw))
        source, target = ROOT / relative, to / relative
        if source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source.readlink())
        elif source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)  # with its mode: some are programs
    return to


class Installed:
    """A virtual environment.

    Attributes:
        folder: of the environment; the broker's data, too.
        environment: of all processes in it.
    """

    def __init__(
        self, folder: Path, python: Path, *, has_compiler: bool = True, **choices: str
    ) -> None:
        self.folder = folder
        self._bin = folder / "venv/bin"
        folder.mkdir(parents=True, exist_ok=True)
        compiler = folder / "cc"  # what is compiled here is not measured: it need not be fast
        compiler.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
        compiler.chmod(0o755)
        paths = [str(self._bin), os.environ["PATH"]]
        if not has_compiler:
            without = folder / "bin"
            without.mkdir(parents=True)
            (without / "sh").symlink_to("/bin/sh")
            paths[1] = str(without)
        mine = {key: value for key, value in os.environ.items() if key not in {*OURS, "PYTHONPATH"}}
        quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONSAFEPATH": "1", "CC": str(compiler)}
        self.environment = mine | {"PATH": os.pathsep.join(paths)} | quiet | choices
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True)

    def run(
        self, *command: str | Path, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment; what it prints is in the result."""
        program = self._bin / command[0]
        return subprocess.run(
            [program, *command[1:]],
            cwd=cwd or self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def pip_install(self, *words: str | Path, cwd: Path | None = None) -> None:
        """Install; what pip prints is shown where it fails."""
        done = self.run("pip", "install", "-q", *words, cwd=cwd)
        assert done.returncode == 0, done.stdout + done.stderr

    @contextmanager
    def serving(self) -> Iterator[BrokerUnderTest]:
        """Serve with the installed program, and hold the broker to pass a message on."""
        unset = dict.fromkeys(OURS, "") | {"PATH": self.environment["PATH"]}
        with serving_by(self._bin / "leveret", self.folder, **unset) as broker:
            with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.queue_declare("hello", durable=True)
                channel.basic_publish(
                    "", "hello", b"Hello World!", pika.BasicProperties(delivery_mode=2)
                )
                assert channel.basic_get("hello", auto_ack=True)[2] == b"Hello World!"
            yield broker
