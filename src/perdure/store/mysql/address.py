"""What a MySQL URL says."""

from __future__ import annotations

import ssl
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from perdure.errors import UsageError
from perdure.model.url import shown_url

_HINT = "expected mysql://user:password@host:3306/database?ssl_mode=verify_identity&ssl_ca=file.pem"
_OPTIONS = ("ssl_mode", "ssl_ca", "ssl_cert", "ssl_key", "unix_socket")
_SSL_MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")


class Address(NamedTuple):
    """Where a database is."""

    parameters: dict[str, Any]
    """For the driver."""
    database: str
    shown: str
    """Without user, password and options."""


def address(url: str) -> Address:
    """Return what a URL says.

    Raises:
        UsageError: it is not one, has an option that is not known, or a file that it names cannot be used.
    """
    shown = shown_url(url)
    try:
        parts = urlsplit(url)
        port = parts.port or 3306
    except ValueError:
        message = f"{shown}: not a MySQL URL"
        raise UsageError(message, hint=_HINT) from None
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        message = f"{shown}: names no database"
        raise UsageError(message, hint=_HINT)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        message = f"{shown}: no such option: {', '.join(unknown)}"
        raise UsageError(message, hint=f"known are {', '.join(_OPTIONS)}")
    parameters: dict[str, Any] = {
        "host": parts.hostname or "localhost",
        "port": port,
        "user": unquote(parts.username or "") or None,
        "password": unquote(parts.password or "").encode(),
        "database": database,
        **_encryption(shown, options),
    }
    if "unix_socket" in options:
        parameters["unix_socket"] = options["unix_socket"]
    return Address(parameters, database, shown)


def _encryption(shown: str, options: dict[str, str]) -> dict[str, Any]:
    """Return the driver's parameters for TLS. Without a mode it is used if the server offers it, unchecked."""
    mode = options.get("ssl_mode", "verify_ca" if "ssl_ca" in options else "preferred").lower()
    if mode not in _SSL_MODES:
        message = f"{shown}: ssl_mode={mode!r}"
        raise UsageError(message, hint=f"known are {', '.join(_SSL_MODES)}")
    if mode == "disabled":
        return {"ssl_disabled": True}
    if mode == "preferred":
        return {}
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca"))
        if "ssl_cert" in options:
            context.load_cert_chain(options["ssl_cert"], options.get("ssl_key"))
    except (OSError, ssl.SSLError) as error:
        message = f"{shown}: cannot read a certificate or key: {error}"
        raise UsageError(message) from None
    # What a server makes for itself when it is installed lacks what the strict rules of Python 3.13 ask for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = mode == "verify_identity"
    context.verify_mode = ssl.CERT_NONE if mode == "required" else ssl.CERT_REQUIRED
    return {"ssl": context}
