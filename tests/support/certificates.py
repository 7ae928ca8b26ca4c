"""Certificates for tests, of an authority that ends with them."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme


class Authority:
    """An authority with its own certificate in `folder`, and those that it issues there."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self._folder = folder
        self.certificate = folder / "ca.crt"
        self._ca.cert_pem.write_to_path(self.certificate)

    def issue(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """A certificate and its key, `<name>.crt` and `<name>.key`, put in place as a whole each."""
        issued = self._ca.issue_cert(*(hosts or ("localhost", "127.0.0.1")))
        certificate, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        for path, content in (
            (certificate, b"".join(pem.bytes() for pem in issued.cert_chain_pems)),
            (key, issued.private_key_pem.bytes()),
        ):
            fresh = path.with_suffix(".new")
            fresh.write_bytes(content)
            fresh.replace(path)
        return certificate, key

    def client(self, pair: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """What a client of ours trusts, and with a certificate and key how it says who it is."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        if pair is not None:
            certificate, key = pair
            context.load_cert_chain(certificate, key)
        return context
