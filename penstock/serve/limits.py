"""How much one client may take. Nobody should have to tune these."""

from __future__ import annotations

from penstock.parse import KIB, MIB

#: The request line and all headers.
HEAD_BYTES_MOST = 64 * KIB
BODY_BYTES_MOST = 8 * MIB
#: A request must have come in whole so long after its first byte, plus a second for each of these bytes.
REQUEST_S = 10.0
BODY_BYTES_A_SECOND = 64 * KIB
#: A connection without a request is closed then.
IDLE_S = 75.0
#: Requests that may wait behind one that is being answered, and pushes that are; then we read no further.
PIPELINE_MOST = 16

#: Keys and prefixes of one subscription.
KEYS_MOST = 10_000
#: What a client sends over a WebSocket.
WEBSOCKET_BYTES_MOST = 1 * MIB
#: A WebSocket without a token must send one so soon.
TOKEN_S = 10.0

#: Above so many unsent bytes a client with TLS is behind, and read again from the log when it has drained.
#: One without is as soon as the kernel takes no more.
HIGH_WATER_BYTES = 4 * KIB
#: Events are joined into one write until they have so many bytes: what a client that does not read may cost.
WRITE_BYTES = 4 * KIB
#: How long the loop is held at a time.
TURN_S = 0.005
#: So many events are looked up at a time for a client that is behind.
CATCH_UP_EVENTS = 100
#: A long poll's answer is cut behind so many bytes; the next one goes on.
ANSWER_BYTES = 1 * MIB
ANSWER_EVENTS = 1000
WAIT_S_MOST = 300.0

#: Visible to JavaScript, and often enough for mobile networks (S002-35).
PING_S = 25
#: Pushes that wait for the disk; then clients are told to come back.
PUSHES_WAITING_MOST = 20_000
PUSH_BYTES_WAITING_MOST = 64 * MIB
#: Pushes share an append up to so much: it fits into one frame, which is there or not.
GROUP_EVENTS_MOST = 8000
GROUP_BYTES_MOST = 512 * KIB
#: So long a group waits for those who pushed a moment ago and were answered; a disk often takes longer.
GROUP_WAIT_S = 0.001
#: With so many the disk need not wait until those before them are answered.
GROUP_PUSHES_LEAST = 64

#: After so many groups in a row that were stored within a turn, the loop stores small ones itself.
QUICK_STORES = 8
QUICK_BYTES = 64 * KIB

#: What the kernel may hold for one client that does not read.
SEND_BUFFER_BYTES = 64 * KIB
#: A peer that acknowledges nothing for so long is gone.
UNACKNOWLEDGED_S = 300
#: How long a server that ends waits for what is under way.
DRAIN_S = 10.0
