"""The door to files of messages that wait until they are due."""

from penstock import uvarint as uvarint
from penstock.delay import file_names as file_names_module
from penstock.delay import file_reader as file_reader_module
from penstock.delay import file_repair as file_repair_module
from penstock.delay import records as records_module
from penstock.delay import scheduler_lock as scheduler_lock_module
from penstock.delay.chain import Chain
from penstock.delay.journal import SessionData
from penstock.delay.journal import _encoder as encoder
from penstock.delay.records import NewRecord, columns, uuid7, uuid7s
from penstock.delay.scheduler import Scheduler
from penstock.delay.state_table import StateTable
from penstock.delay.states import (
    READING,
    WRITING,
    Change,
    FileState,
    Operation,
    StateId,
    decode_changes,
    decode_snapshot,
    encode_change,
    encode_snapshot,
    fold,
)
from penstock.delay.verify import FolderVerifier
from penstock.delay.waiting import WaitingMessages
from penstock.delay.window import TakenMessage
