"""The door to frames: encode them, decode them, their bytes."""

from penstock.log import frame as frame_module
from penstock.log import frame_encode as frame_encode_module
from penstock.log.frame import RAW, Frame, ProducerStamp
from penstock.log.frame_encode import EncodedFrame, control, encode
from penstock.log.frame_header import COMPRESSED, FENCE, SEAL, read_head
from penstock.log.rows import FrameRows, rows_that_fit
