"""Collectives, one algorithm a file: who sends what to whom, step by step."""

from playbook.collectives.algorithm import Algorithm, Phase
from playbook.collectives.collective import Collective, collective
from playbook.collectives.costs import collective_costs
from playbook.collectives.operation import OPERATIONS, Operation, State, find_operation
from playbook.collectives.registry import algorithms, find_algorithm
from playbook.collectives.steps import Step, Transfer

__all__ = [
    "OPERATIONS",
    "Algorithm",
    "Collective",
    "Operation",
    "Phase",
    "State",
    "Step",
    "Transfer",
    "algorithms",
    "collective",
    "collective_costs",
    "find_algorithm",
    "find_operation",
]
