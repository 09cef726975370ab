"""Data parallelism: replicas whose gradients are averaged."""
