"""The door to the command line."""

from penstock.cli import main
from penstock.cli.failures import Exit
from penstock.cli.stream.publish import Counted
