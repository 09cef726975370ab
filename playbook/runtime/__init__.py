"""Real ranks: the pool that runs jobs on them, the run directory they write, and torchrun's way in."""
