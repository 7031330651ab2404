"""TLS for the public port: a certificate and its key, both PEM files."""

from __future__ import annotations

import ssl

from penstock.errors import InvalidOption


def tls_context(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """How connections are encrypted; None when they are not. Raises `InvalidOption` for unusable files.

    `certificate` may hold the chain behind it, and the key if `key` is not given.
    """
    if certificate is None:
        if key is not None:
            raise InvalidOption("a key for TLS and no certificate", hint="--tls-cert FILE")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # A key with a passphrase would ask for it, in each worker.
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror if not isinstance(error, ssl.SSLError) else _reason(error)
        shown = certificate if key is None else f"{certificate} and {key}"
        raise InvalidOption(
            f"{shown}: {reason}", hint="--tls-cert and --tls-key take PEM files that belong together"
        ) from None
    return context


def _no_passphrase() -> str:
    raise InvalidOption("the key for TLS has a passphrase", hint="give one without")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "not a certificate and its key in PEM").replace("_", " ").lower()
