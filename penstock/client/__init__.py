"""Penstock over the network."""
