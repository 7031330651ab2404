"""The door to reading as a consumer: members, commits, retries."""

from penstock.consume import membership as membership_module
from penstock.consume import retries as retries_module
from penstock.consume.membership import FREE_TOO_LONG_S, moves, quota
from penstock.consume.partition import Commits
from penstock.consume.retries import Envelope
from penstock.consume.transaction_part import TransactionPart
