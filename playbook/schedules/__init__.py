"""Pipeline schedules, one a file: each rank's list of actions."""

from playbook.schedules.action import KINDS, Action
from playbook.schedules.plan import Plan
from playbook.schedules.registry import find_plan, plans
from playbook.schedules.schedule import Schedule, schedule, schedule_from_orders

__all__ = ["KINDS", "Action", "Plan", "Schedule", "find_plan", "plans", "schedule", "schedule_from_orders"]
