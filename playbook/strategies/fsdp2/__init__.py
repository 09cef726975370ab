"""FSDP2, ZeRO stage 3: data-parallel ranks share parameters, gradients and the optimizer's state."""
