"""A topic with all that a sweep can find, for the tests of both engines."""

import os
import time
from dataclasses import dataclass

import penstock
from penstock import Payloads
from tests.kit.bodies import TEMPORARY, FileBodies, path_of
from tests.kit.topics import inside
from tests.payloads.kit import KIB, body, messages, objects, referred

DAY_S = 24 * 3600


@dataclass
class Scene:
    """What lies where."""

    topic: penstock.Topic
    #: Bodies of messages that are all there.
    sound: set[str]
    orphans: set[str]
    young: set[str]
    #: A pack that has lost one of its two messages.
    partly_dead: str
    #: The message whose body is gone: partition, offset, and the body's name.
    loss: tuple[int, int, str]


def bodies_of(topic: penstock.Topic):
    [store] = inside(topic).bodies.stores().values()
    return store


def age(topic: penstock.Topic, names, seconds: float = 2 * DAY_S) -> None:
    """Have bodies in files look as if they had been stored so long ago."""
    store, then = bodies_of(topic), time.time() - seconds
    assert isinstance(store, FileBodies)
    for name in names:
        os.utime(os.path.join(store.folder, path_of(name)), (then, then))


def age_unfinished(topic: penstock.Topic, seconds: float = 2 * DAY_S) -> None:
    store, then = bodies_of(topic), time.time() - seconds
    assert isinstance(store, FileBodies)
    for each in store.unfinished():
        os.utime(os.path.join(store.folder, TEMPORARY, each.name), (then, then))


def orphan_body(topic: penstock.Topic, name: str | None = None) -> str:
    """A body as a process leaves it that dies before its message is written."""
    return inside(topic).bodies.put(body(3 * KIB), name).name


def scene(store: penstock.Store, place: str = "files") -> Scene:
    """A topic `images` of two partitions; in files, everything but one body is two days old."""
    topic = store.create_topic("images", partitions=2, payloads=Payloads(place=place, above="1KiB"))
    topic.write_many([b"small", None, b""], partition=0)
    topic.add_consumer("slow", important=True)
    topic.write_many([body(2 * KIB), body(2 * KIB)], partition=1)  # a pack
    [pack] = objects(topic)
    topic.alter(retention="0s")
    topic.seek_consumer("slow", {0: 0, 1: 1})
    topic.vacuum()
    topic.alter(retention="30d")
    topic.write(body(5 * KIB), partition=0)
    topic.write(body(5 * KIB), partition=1, name="y" * 900)  # too long for a path
    receipt = topic.write(body(4 * KIB), partition=1)
    lost = topic.get(receipt.offset, partition=1).reference.name
    topic.write(body(5 * KIB), partition=1)
    sound = referred(topic) - {lost, pack}
    orphans = {orphan_body(topic), orphan_body(topic, "z" * 950), orphan_body(topic, "../odd name")}
    if place == "files":
        age(topic, objects(topic))
    young = {orphan_body(topic)} if place == "files" else set()
    assert bodies_of(topic).delete([lost]) == 1
    return Scene(topic, sound, orphans, young, pack, (1, receipt.offset, lost))


def check_found(scene: Scene, swept) -> None:
    """The sweep tells exactly of what is there."""
    there = objects(scene.topic)
    assert (swept.orphans, swept.young) == (len(scene.orphans), len(scene.young))
    assert (swept.partly_dead, swept.dead_bytes) == (1, 2 * KIB)
    assert (swept.losses, swept.elsewhere, swept.unfinished) == (1, 0, 0)
    assert (swept.bodies, swept.messages) == (len(there) + swept.deleted, 5)
    assert swept.orphan_bytes == 3 * KIB * len(scene.orphans)
    by_kind = {
        kind: [f for f in swept.findings if f.kind == kind] for kind in ("orphan", "loss", "partly dead")
    }
    assert {each.name for each in by_kind["orphan"]} == scene.orphans
    assert all(each.stored is not None and each.bytes == 3 * KIB for each in by_kind["orphan"])
    assert [(f.partition, f.offset, f.name) for f in by_kind["loss"]] == [scene.loss]
    assert [(f.name, f.bytes) for f in by_kind["partly dead"]] == [(scene.partly_dead, 2 * KIB)]


def check_kept(scene: Scene) -> None:
    """Nothing went that a message refers to, or that is young."""
    assert set(objects(scene.topic)) == scene.sound | scene.young | {scene.partly_dead}
    left = [each for each in messages(scene.topic) if (each.partition, each.offset) != scene.loss[:2]]
    sizes = sorted(-1 if each.value is None else len(each.value) for each in left)
    assert sizes == [-1, 0, 5, 2 * KIB, 5 * KIB, 5 * KIB, 5 * KIB]
