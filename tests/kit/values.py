"""The door to the values at the root of the package: keys, options, places, parsing, codecs."""

from penstock import arrow as arrow_module
from penstock import codecs as codecs_module
from penstock.codecs import limits as limits_module
from penstock.codecs import zstd as zstd_module
from penstock.exchange import arrow_files as arrow_files_module
from penstock.exchange import diskq_segment as diskq_segment_module
from penstock.exchange import file_import as file_import_module
from penstock.exchange.arrow_files import import_table
from penstock.exchange.csv_files import CsvRows
from penstock.exchange.diskq_columns import decode_columns
from penstock.exchange.diskq_format import Encoding, Misfit, Records, decode, encode
from penstock.exchange.diskq_import import import_diskq
from penstock.exchange.file_export import ExportRange, export_file
from penstock.exchange.file_import import import_lines
from penstock.exchange.follow import Follower
from penstock.exchange.records import FieldChoice
from penstock.exchange.text_lines import JsonLines
from penstock.exchange.topic_copy import copy_topic
from penstock.keys import match
from penstock.message import NO_HEADERS, LazyMessage
from penstock.options import TopicOptions, rules_of, topic_changes
from penstock.parse import (
    KIB,
    MIB,
    TIME_MAX_NS,
    TIME_MIN_NS,
    consumer_name,
    datetime_ns,
    nanoseconds,
    seconds,
    size,
    topic_name,
)
from penstock.place import EARLIEST, LATEST, Spot, spot
