"""Torch models that the strategies run on."""
