"""The door to archive tables."""

from penstock.lake import layout as layout_module
from penstock.lake import parquet_files as parquet_files_module
from penstock.lake import storage as storage_module
from penstock.lake import table as table_module
from penstock.lake.current import CurrentTable
from penstock.lake.cut import NOTHING, Held, OffsetRange, first_offset, shared
from penstock.lake.history import History
from penstock.lake.json_columns import NO_VALUE, Parser
from penstock.lake.layout import RAW_SCHEMA, TIME, LakeFile, in_files, json_schema
from penstock.lake.parquet_files import FILE_BYTES, FileTarget, read, write
from penstock.lake.storage import Storage, s3_arguments, storage
from penstock.lake.table import Archive, ArchivedSpan, ArchiveOrigin, open_archive, open_or_create
