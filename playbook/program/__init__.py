"""The step program of one rank: rows with stable ids, walked for memory, summed for traffic, run for time."""
