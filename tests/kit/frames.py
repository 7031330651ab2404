"""The door to frames: encode them, decode them, their bytes."""

from penstock.log import frame_encode
from penstock.log.frame import RAW
from penstock.log.frame_encode import EncodedFrame, MessageColumns, control

__all__ = ["EncodedFrame", "control", "encode"]


def encode(
    values, keys=None, *, created, compress=False, producer=None, producers=None, codec=RAW, codecs=None,
    **columns,
) -> EncodedFrame:  # fmt: skip
    """One frame. `producer` is one for all with their seqnos, `producers` are one each with theirs."""
    if producer is not None:
        columns |= {"stamp": producer[0], "seqnos": producer[1]}
    if producers is not None:
        columns |= {"stamps": producers[0], "seqnos": producers[1]}
    made = MessageColumns(values, keys, codecs=codec if codecs is None else codecs, **columns)
    return frame_encode.encode(made, created=created, compress=compress)
