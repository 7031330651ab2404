"""The tables of `state.db`, and what each format added to the one before."""

from __future__ import annotations

#: 2 added bindings and transactions, 3 pipelines, 4 streams, queues and what transactions delay, 5 deaths of
#: readers, 6 partitions as rows; an older store gets them when first opened for writing.
FORMAT = 6
#: Formats that this version reads.
READABLE = (1, 2, 3, 4, 5, 6)
#: "PnSk": marks the database of a store.
APPLICATION_ID = 0x506E536B

#: The tables of format 1.
SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE topics (
    id INTEGER PRIMARY KEY,              -- never used again, also not for a topic of the same name
    name TEXT NOT NULL UNIQUE,
    options TEXT NOT NULL,               -- JSON of TopicOptions
    tree INTEGER NOT NULL DEFAULT 0,     -- counts changes of the partitions
    created INTEGER NOT NULL
);
CREATE TABLE gates (                     -- a partition added later opens to a consumer behind these
    topic_id INTEGER NOT NULL, partition INTEGER NOT NULL, parent INTEGER NOT NULL, offset INTEGER NOT NULL,
    PRIMARY KEY (topic_id, partition, parent)
) WITHOUT ROWID;
CREATE TABLE consumers (
    name TEXT NOT NULL, topic_id INTEGER NOT NULL, options TEXT NOT NULL, created INTEGER NOT NULL,
    PRIMARY KEY (name, topic_id)
) WITHOUT ROWID;
CREATE TABLE positions (
    consumer TEXT NOT NULL, topic_id INTEGER NOT NULL, partition INTEGER NOT NULL,
    position INTEGER NOT NULL,           -- the next offset to read, never "last read"
    epoch INTEGER NOT NULL DEFAULT 0,    -- counts changes of hands: who commits with an older one lost it
    updated INTEGER NOT NULL,
    PRIMARY KEY (consumer, topic_id, partition)
) WITHOUT ROWID;
CREATE INDEX positions_by_topic ON positions (topic_id, partition);
"""
_SINCE_2 = """
CREATE TABLE bindings (                  -- a producer's group stays in the partition it was first given
    topic_id INTEGER NOT NULL, producer TEXT NOT NULL, message_group TEXT NOT NULL,
    partition INTEGER NOT NULL,
    used INTEGER NOT NULL,               -- when it was last seen writing, to the hour
    PRIMARY KEY (topic_id, producer, message_group)
) WITHOUT ROWID;
CREATE TABLE turns (topic_id INTEGER PRIMARY KEY, bound INTEGER NOT NULL);  -- bindings made so far
CREATE TABLE transactions (              -- committed, and perhaps not yet in all its partitions
    id INTEGER PRIMARY KEY,
    name TEXT UNIQUE,                    -- given by the caller: the same name is never committed twice
    committed INTEGER NOT NULL
);
CREATE TABLE staged (                    -- what a transaction has still to bring into a partition, in order
    tx INTEGER NOT NULL, topic_id INTEGER NOT NULL, partition INTEGER NOT NULL, number INTEGER NOT NULL,
    base INTEGER NOT NULL,               -- the offset of its first message
    count INTEGER NOT NULL,
    file TEXT,                           -- a staged file in the partition's folder, if it is large
    data BLOB NOT NULL,                  -- the frames, or with a file only their headers
    PRIMARY KEY (tx, topic_id, partition, number)
) WITHOUT ROWID;
CREATE INDEX staged_by_partition ON staged (topic_id, partition, base);
"""
_SINCE_3 = """
CREATE TABLE pipelines (
    name TEXT PRIMARY KEY,
    kind TEXT NOT NULL,                  -- archive, rollup, …; run for the user's own
    consumer TEXT,                       -- its positions show how far it is
    identity TEXT NOT NULL,              -- JSON: what a restart must agree with
    options TEXT NOT NULL,               -- JSON: what the latest run was started with
    run TEXT NOT NULL,                   -- JSON of RunFacts: its latest run
    stop INTEGER NOT NULL DEFAULT 0,     -- someone asked the run to end
    created INTEGER NOT NULL
) WITHOUT ROWID;
"""
_SINCE_4 = """
CREATE TABLE stream_positions (          -- of durable consumers of subject streams
    topic_id INTEGER NOT NULL, durable TEXT NOT NULL,
    subject TEXT NOT NULL,               -- or a pattern
    position INTEGER NOT NULL,           -- the next offset to read: the last sequence that was read
    PRIMARY KEY (topic_id, durable, subject)
) WITHOUT ROWID;
CREATE INDEX stream_positions_by_subject ON stream_positions (topic_id, subject);
CREATE TABLE streams (
    topic_id INTEGER PRIMARY KEY,
    ttl TEXT NOT NULL,                   -- JSON: how long messages live
    swept INTEGER                        -- up to which moment expired messages were reported
);
CREATE TABLE delayed (                   -- what a committed transaction has still to put into `delay/publish`
    tx INTEGER NOT NULL, number INTEGER NOT NULL,
    due INTEGER NOT NULL,                -- in milliseconds since 1970
    topic TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (tx, number)
) WITHOUT ROWID;
CREATE TABLE queues (                    -- consumers whose readers take single messages
    consumer TEXT NOT NULL, topic_id INTEGER NOT NULL, partition INTEGER NOT NULL,
    next INTEGER NOT NULL,               -- the first offset that nobody was given
    PRIMARY KEY (consumer, topic_id, partition)
) WITHOUT ROWID;
CREATE TABLE leases (                    -- what of queues is out or comes again; else it is done
    consumer TEXT NOT NULL, topic_id INTEGER NOT NULL, partition INTEGER NOT NULL,
    first INTEGER NOT NULL, stop INTEGER NOT NULL,
    member INTEGER NOT NULL,             -- the reader that has them; 0: nobody
    until INTEGER NOT NULL,              -- in milliseconds since 1970: then they are anybody's
    attempts INTEGER NOT NULL,           -- how often they were handed out
    data BLOB,                           -- of one that waited for another attempt: the message
    PRIMARY KEY (consumer, topic_id, partition, first)
) WITHOUT ROWID;
CREATE INDEX leases_by_time ON leases (consumer, topic_id, partition, until);
CREATE INDEX leases_by_member ON leases (consumer, topic_id, partition, member);
"""
_SINCE_5 = """
CREATE TABLE deaths (                    -- partitions whose readers died with messages in hand
    consumer TEXT NOT NULL, topic_id INTEGER NOT NULL, partition INTEGER NOT NULL,
    position INTEGER NOT NULL,           -- where the consumer stood when the last one died
    count INTEGER NOT NULL,              -- how many died there, one after another
    reach INTEGER NOT NULL,              -- up to here messages were delivered since
    until INTEGER NOT NULL,              -- up to here they are delivered one by one
    alone INTEGER NOT NULL,              -- the last that was, or -1
    PRIMARY KEY (consumer, topic_id, partition)
) WITHOUT ROWID;
"""
_SINCE_6 = """
CREATE TABLE partitions (                -- of topics whose partitions changed; others have what options say
    topic_id INTEGER NOT NULL, partition INTEGER NOT NULL,
    state TEXT NOT NULL,                 -- active, inactive (split: only read), removed (empty: no folder)
    low INTEGER NOT NULL, high INTEGER NOT NULL,  -- its hashes: from low up to, and without, high
    parents TEXT NOT NULL,               -- JSON: {"<parent>": offset behind which it opens}
    stop INTEGER,                        -- of one that was split: the offset behind its last message
    PRIMARY KEY (topic_id, partition)
) WITHOUT ROWID;
CREATE TABLE splits (                    -- begun: a seal in the parent's log makes it true, then rows say so
    topic_id INTEGER NOT NULL, parent INTEGER NOT NULL,
    low_child INTEGER NOT NULL, high_child INTEGER NOT NULL,
    cut INTEGER NOT NULL,                -- the first hash of the upper child
    PRIMARY KEY (topic_id, parent)
) WITHOUT ROWID;
"""
#: What each format added to the one before.
ADDED = {2: _SINCE_2, 3: _SINCE_3, 4: _SINCE_4, 5: _SINCE_5, 6: _SINCE_6}
