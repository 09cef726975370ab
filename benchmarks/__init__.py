"""What the README's performance table is made from: one file a budget, run by `python -m benchmarks`."""
