"""The public port: live events over HTTP long poll, server-sent events and WebSocket.

    http        one connection: requests in, answers out, in order
    websocket · sse · longpoll      how one subscriber is told
    hub         the tail of each topic, and who waits for which key
    behind      those who have fallen behind, read from the log
    events      the routes                     pushing    what is pushed
    groups      pushes that share an append    owed       answers that wait for their turn
    access · origins                           who may
    server      one process                    workers    several of them on one port

Needs the extra `server`.
"""

from __future__ import annotations
