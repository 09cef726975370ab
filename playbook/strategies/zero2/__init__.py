"""ZeRO stage 2: data-parallel ranks share gradients and the optimizer's state."""
