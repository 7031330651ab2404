"""The door to the public port."""

from penstock.serve.push import Push, store_together
from penstock.serve.server import ServeOptions
from penstock.websocket_frames import CLOSE, PING, TEXT, BadFrame, Frames, frame
