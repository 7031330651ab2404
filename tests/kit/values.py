"""The door to the values at the root of the package: keys, options, places, parsing, codecs."""

from penstock import arrow as arrow_module
from penstock import codecs as codecs_module
from penstock.codecs import limits as limits_module
from penstock.codecs import zstd as zstd_module
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
