"""Where the server is and what it is told in secret."""

from __future__ import annotations

import ipaddress
import re

import httpx
from pydantic import SecretStr

from pipelines.config import ServingSettings
from pipelines.errors import ConfigError

__all__ = ["KEY_VARIABLE", "Address", "open_address"]

#: The environment variable to put the key into.
KEY_VARIABLE = "UNDERSTUDY_SERVING__API_KEY"
#: Longest text of a server that is repeated in a message (characters).
MAX_REPEATED = 200

_HIDDEN = "[key]"
_INNER_SUFFIXES = (".local", ".internal", ".lan", ".svc", ".cluster.local", ".localhost")


class Address:
    """A server's root, and the key for it.

    Attributes
    ----------
    api
        Root of the OpenAI-compatible interface, such as ``http://127.0.0.1:8000/v1``.
    root
        The same without its last ``/v1``: where servers put their own extras.
    loopback
        Whether the server is this machine.
    """

    __slots__ = ("_key", "api", "loopback", "root")

    def __init__(self, api: str, loopback: bool, key: SecretStr | None) -> None:
        self.api = api
        self.root = api.removesuffix("/v1")
        self.loopback = loopback
        self._key = key

    def __repr__(self) -> str:
        return f"Address({self.api!r})"

    @property
    def has_key(self) -> bool:
        """Whether there is a key."""
        return self._key is not None

    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        headers = {"Accept": "application/json", "User-Agent": "understudy"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key.get_secret_value()}"
        return headers

    def leaks(self, content: str | bytes) -> bool:
        """Whether something that came from the server repeats the key."""
        if self._key is None:
            return False
        key = self._key.get_secret_value()
        return key.encode() in content if isinstance(content, bytes) else key in content

    def quote(self, text: str) -> str:
        """A server's own words, fit for a message: one line, short, without the key."""
        if self._key is not None:
            text = text.replace(self._key.get_secret_value(), _HIDDEN)
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return text if len(text) <= MAX_REPEATED else text[:MAX_REPEATED] + " ..."


def open_address(serving: ServingSettings) -> Address:
    """Check the settings and return the address.

    Raises
    ------
    ConfigError
        If the address is not an http(s) URL, holds credentials or a query, or would carry the
        key unencrypted over a public network; if the key has characters that no header carries.
    """
    try:
        url = httpx.URL(serving.base_url.strip().rstrip("/"))
    except httpx.InvalidURL:
        raise ConfigError("serving.base_url is not an address") from None
    if url.userinfo or url.query or url.fragment:
        # The value is not shown: it may hold a secret.
        raise ConfigError(
            "serving.base_url must hold no credentials or query",
            hint=f"a key goes to {KEY_VARIABLE}",
        )
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError("serving.base_url is not an http(s) address", where=serving.base_url)
    key = serving.api_key.get_secret_value().strip() if serving.api_key else ""
    if key and not re.fullmatch(r"[\x21-\x7e]+", key):
        # Said here because the HTTP library's own message would show the value.
        raise ConfigError("the server's key has characters that no key has", where=KEY_VARIABLE)
    if key and url.scheme == "http" and not _is_inner(url.host):
        raise ConfigError(
            "serving.base_url must be https: the key would be sent unencrypted", where=str(url)
        )
    return Address(str(url), _is_loopback(url.host), SecretStr(key) if key else None)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_inner(host: str) -> bool:
    """Whether a host is of this machine or a private network, where plain HTTP is usual."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith(_INNER_SUFFIXES)
