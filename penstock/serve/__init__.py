"""The public port: live events over HTTP long poll, server-sent events and WebSocket.

    http_connection     one connection: requests in, answers out, in order
    http_messages       requests and answers as routes see them
    routes              what each URL does
    access              tokens, and the pages that may talk to the port
    push, idempotency   pushes: gathered, stored with one sync, once
    feed, catch_up      the end of each topic's log, and subscribers that are behind it
    encoded_event       an event as bytes, encoded once for all its receivers
    event_stream        what the two streaming transports share
    sse, websocket      subscribers that stay connected
    long_poll           subscribers that get one answer
    server, workers     one serving process, and several of them on one port
    asgi                the same routes within somebody else's app

Needs the extra `server`.
"""

from __future__ import annotations
