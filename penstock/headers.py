"""A message's headers; apart from `message`, so that who only reads columns need not load it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

Headers = Mapping[str, str | bytes]

#: Shared by all messages that have none.
NO_HEADERS: Headers = MappingProxyType({})
