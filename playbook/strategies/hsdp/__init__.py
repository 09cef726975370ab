"""Hybrid sharding (HSDP)."""
