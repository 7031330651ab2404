"""The door to the Tarantool engine of streams."""

from penstock.tarantool.tarantool import SEED_FUNCTIONS, VERSION, install_text
