"""Penstock over the network."""

from __future__ import annotations
