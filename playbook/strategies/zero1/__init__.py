"""ZeRO stage 1: data-parallel ranks share the optimizer's state."""
