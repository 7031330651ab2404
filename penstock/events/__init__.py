"""Other ways to look at a topic, each thin and without files of its own."""

from __future__ import annotations
