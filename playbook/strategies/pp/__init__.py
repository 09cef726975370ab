"""Pipeline parallelism: ranks share the layers, micro-batches flow through them."""
