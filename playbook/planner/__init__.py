"""Searches: an order of a pipeline's actions, a cut of the layers into stages, a number of micro-batches."""

from playbook.planner.search import find_schedule

__all__ = ["find_schedule"]
