"""Exercises, one file a chapter: each has a tuple `EXERCISES`."""
