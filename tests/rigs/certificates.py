"""Authorities and certificates for tests, made by the program ``openssl``; keys of P-256, which take milliseconds."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


def openssl(*arguments: str | Path, folder: Path) -> None:
    done = subprocess.run(
        ["openssl", *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, in files."""

    cert: Path
    key: Path

    @property
    def pair(self) -> tuple[Path, Path]:
        return self.cert, self.key


# What RFC 5280 demands of authorities and of what they issue; from Python 3.13 on clients refuse less.
OF_AUTHORITIES = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
OF_ISSUED = ("subjectKeyIdentifier=hash", "authorityKeyIdentifier=keyid")


class Authority:
    """An authority with a certificate of its own, or one from another authority."""

    def __init__(self, folder: Path, name: str = "Test", parent: Authority | None = None) -> None:
        self.folder = folder / name.replace(" ", "_")
        self.folder.mkdir(parents=True)
        self.parent = parent
        self._count = 0
        if parent is not None:
            made = parent.issue(name, "\n".join(OF_AUTHORITIES))
            self.cert, self.key = made.cert, made.key
            return
        self.cert, self.key = self.folder / "ca.pem", self.folder / "ca.key"
        _key(self.key)
        extensions = [word for each in OF_AUTHORITIES for word in ("-addext", each)]
        openssl(
            "req", "-x509", "-new", "-key", self.key, "-subj", f"/CN={name} authority", "-days", "2",
            *extensions, "-out", self.cert, folder=self.folder,
        )  # fmt: skip

    def issue(
        self,
        name: str,
        extensions: str = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1",
        days: int = 2,
        subject: str = "",
        password: str = "",
    ) -> Issued:
        """Return a new certificate; ``days`` below 0: it has expired; ``password``: its key is encrypted."""
        self._count += 1
        base = self.folder / f"{self._count}"
        issued = Issued(base.with_suffix(".pem"), base.with_suffix(".key"))
        request, file = base.with_suffix(".csr"), base.with_suffix(".ext")
        _key(issued.key)
        subject = subject or f"/O=Test/CN={name}"
        openssl(
            "req", "-new", "-utf8", "-key", issued.key, "-subj", subject, "-out", request,
            folder=self.folder,
        )  # fmt: skip
        file.write_text("\n".join((extensions, *OF_ISSUED, "")))
        openssl(
            "x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial",
            "-days", str(days), "-extfile", file, "-out", issued.cert, folder=self.folder,
        )  # fmt: skip
        if password:
            plain = issued.key.rename(base.with_suffix(".plain"))
            openssl(
                "pkcs8", "-topk8", "-in", plain, "-out", issued.key, "-passout", f"pass:{password}",
                folder=self.folder,
            )  # fmt: skip
        if self.parent is not None:  # the chain goes with it
            issued.cert.write_text(issued.cert.read_text() + self.cert.read_text())
        return issued

    def client(self, issued: Issued | None = None, **versions: ssl.TLSVersion) -> ssl.SSLContext:
        """Return the context of a client that trusts this authority, and has this certificate."""
        context = ssl.create_default_context(cafile=str(self.cert))
        for name, version in versions.items():
            setattr(context, name, version)
        if issued is not None:
            context.load_cert_chain(*issued.pair)
        return context


def _key(path: Path) -> None:
    openssl(
        "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path,
        folder=path.parent,
    )  # fmt: skip
