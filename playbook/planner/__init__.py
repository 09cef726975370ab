"""Searches: an order of a pipeline's actions, a cut of the layers into stages, a number of micro-batches."""

from playbook.planner.microbatches import best_microbatches
from playbook.planner.search import find_schedule
from playbook.planner.stage_cut import cut_stages
from playbook.planner.stage_times import StageTimes

__all__ = ["StageTimes", "best_microbatches", "cut_stages", "find_schedule"]
