"""Doors to the inside: what tests of the outside may know of it, one file a part."""
