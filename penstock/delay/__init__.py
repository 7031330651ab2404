"""Files of waiting messages: a chain for each delay, and the delivery of what is due. Knows no topic."""

from __future__ import annotations
