"""Searches: an order of a pipeline's actions, a cut of the layers into stages, a number of micro-batches."""

from playbook.planner.search import find_schedule
from playbook.planner.stage_cut import cut_stages

__all__ = ["cut_stages", "find_schedule"]
