"""The door to bodies outside the log."""

from penstock import references as references_module
from penstock.payloads.chunks import PIECE_BYTES
from penstock.payloads.files import FileBodies
from penstock.payloads.names import TEMPORARY, name_of, note_of, path_of
from penstock.payloads.open import open_bodies
from penstock.payloads.store import GRACE_NS, FoundBody, losses, orphans
from penstock.references import unpack
from penstock.topic import copy_bodies as copy_bodies_module
from penstock.topic.body_trim import BodyTrim, references_between
