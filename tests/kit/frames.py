"""The door to frames: encode them, decode them, their bytes."""

from __future__ import annotations

from typing import Any

from penstock.log import frame as frame_module
from penstock.log import frame_encode as frame_encode_module
from penstock.log.frame import RAW, Frame, ProducerStamp
from penstock.log.frame_encode import EncodedFrame, MessageColumns, control
from penstock.log.frame_encode import encode as frame_encode_encode
from penstock.log.frame_header import COMPRESSED, FENCE, SEAL, read_head
from penstock.log.rows import FrameRows, rows_that_fit


def encode(
    values: Any, keys: Any = None, *, created: int, compress: bool = False, producer: Any = None,
    producers: Any = None, codec: int = RAW, codecs: Any = None, **columns: Any,
) -> EncodedFrame:  # fmt: skip
    """One frame. `producer` is one for all with their seqnos, `producers` are one each with theirs."""
    if producer is not None:
        columns |= {"stamp": producer[0], "seqnos": producer[1]}
    if producers is not None:
        columns |= {"stamps": producers[0], "seqnos": producers[1]}
    made = MessageColumns(values, keys, codecs=codec if codecs is None else codecs, **columns)
    return frame_encode_module.encode(made, created=created, compress=compress)
