"""The door to the store's machinery and to `state.db`."""

from penstock.state.database import Database
from penstock.state.transactions import Transactions
from penstock.store import replay as replay_module
from penstock.store.backup import backup, backups, restore
from penstock.store.catalogue import DroppedBodies
from penstock.store.expiry import Expiry
from penstock.store.pipelines import claim
from penstock.store.repair import apply_repair, plan_repair
from penstock.store.verify import StoreVerifier
