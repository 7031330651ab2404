"""The door to a topic as one process has it open."""

from penstock import Topic
from penstock.topic import delayed as delayed_module
from penstock.topic import input as input_module
from penstock.topic import staging as staging_module
from penstock.topic import write_batch as write_batch_module
from penstock.topic.append import TopicAppender
from penstock.topic.delayed import DelayedMessage, Extras
from penstock.topic.open_topic import OpenTopic
from penstock.topic.partition_table import PartitionTable
from penstock.topic.retention import vacuum
from penstock.topic.routing import PARTITIONERS, by_range


def inside(topic: Topic) -> OpenTopic:
    """The topic as this process has it open: its logs, its folder, its options."""
    return topic.open_topic
