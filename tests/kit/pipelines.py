"""The door to Spark sessions and pipelines."""

from penstock.spark import executors as executors_module
from penstock.spark import java as java_module
from penstock.spark import java_classes
from penstock.spark.aggregation_tasks import _floored as floored_to_windows
from penstock.spark.executors import told_at_the_end, without_broken_pipes
from penstock.spark.pipelines import archive as archive_module
from penstock.spark.pipelines import archive_tasks as archive_tasks_module
from penstock.spark.pipelines import compact as compact_module
from penstock.spark.pipelines import dedup as dedup_module
from penstock.spark.pipelines import replay_table as replay_table_module
from penstock.spark.pipelines import sweep as sweep_module
from penstock.spark.pipelines import upsert as upsert_module
from penstock.spark.pipelines.archive_tasks import Filling, fill
from penstock.spark.pipelines.enrich import enrich
from penstock.spark.pipelines.mirror import mirror
from penstock.spark.pipelines.quality import quality
from penstock.spark.pipelines.replay_table import plan_replay_table, wanted_of
from penstock.spark.pipelines.sessions import sessions
from penstock.spark.pipelines.upsert import upsert
from penstock.spark.session import _for_launch as for_launch
from penstock.spark.session import _settings as settings
from penstock.spark.session import find_java
from penstock.spark.stream_run import clear_unbegun
from penstock.spark.user.load import load
from penstock.spark.user.query import build, check_table, read_table
from penstock.spark.user.run import identity
from penstock.spark.worker import refuse_wrong_python
