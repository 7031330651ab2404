"""The door to one partition's files: the log, its parts, its records."""

from penstock.log import append as append_module
from penstock.log import key_index as key_index_module
from penstock.log import producer_table as producer_table_module
from penstock.log import producers as producers_module
from penstock.log import segment as segment_module
from penstock.log import segment_index as segment_index_module
from penstock.log import staging as staging_module
from penstock.log.append import Appender
from penstock.log.folder import PRODUCERS
from penstock.log.key_index import GatheredKeys
from penstock.log.key_retention import Lifetimes
from penstock.log.key_search import stored_keys
from penstock.log.log import Log
from penstock.log.producer_table import Pair, ProducerTable
from penstock.log.producers import Producers
from penstock.log.records import DURABLE_AT, RECORD_BYTES, AppendRecord, DurableRecord, ShownRecord
from penstock.log.segment import SEGMENT_HEADER_BYTES, SegmentHead, parse_head
from penstock.log.sync import Syncer
from penstock.log.trim import purge


def seal_segment(log: Log) -> None:
    """End the active segment, so that what was written lies in a sealed one."""
    log.appender.seal_active()


def do_housekeeping(log: Log) -> None:
    """Do the log's housekeeping now: index, repack and remove what is due."""
    with log.folder.housekeeping():
        log.tidy()
