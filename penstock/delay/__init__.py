"""Files of waiting messages: a chain for each delay, and who hands out what is due. Knows no topic."""

from __future__ import annotations
