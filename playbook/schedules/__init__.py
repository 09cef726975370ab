"""Pipeline schedules, one a file: each rank's list of actions."""

from playbook.schedules.action import KINDS, Action
from playbook.schedules.plan import Plan
from playbook.schedules.registry import find_plan, plans

__all__ = ["KINDS", "Action", "Plan", "find_plan", "plans"]
