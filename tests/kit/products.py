"""The door to live events, streams and sessions."""

from penstock.events.event import Pushed
