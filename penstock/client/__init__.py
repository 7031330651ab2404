"""Clients of a server: live events over the network."""

from __future__ import annotations
