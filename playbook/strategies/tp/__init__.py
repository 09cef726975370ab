"""Tensor parallelism: ranks share the columns and rows of every product of a layer."""
