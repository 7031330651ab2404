"""Streams whose messages are in Tarantool: its Lua, the engine that speaks to it, and the way out of it."""

from __future__ import annotations
