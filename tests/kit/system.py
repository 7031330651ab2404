"""The door to the seams of the operating system: files, locks, clocks."""

from penstock import locks as locks_module
from penstock.clock import NANOSECONDS, CommandClock
from penstock.files import DISK_REFUSE, Files, OpenFile, file_system, refuse_network_file_system
