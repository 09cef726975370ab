"""What is read off a scenario's step program: memory, traffic, time."""

from playbook.predict.memory import TrainingMemory, training_memory
from playbook.predict.stages import program_of
from playbook.predict.timing import StepTime, step_time
from playbook.predict.zero import ZeroState, zero_states
from playbook.program.step import Program
from playbook.program.traffic import Traffic
from playbook.spec import Scenario

__all__ = [
    "StepTime",
    "TrainingMemory",
    "ZeroState",
    "program",
    "step_time",
    "traffic",
    "training_memory",
    "zero_states",
]


def program(s: Scenario, rank: int = 0) -> Program:
    """Return the step program of one rank."""
    return program_of(s, rank)


def traffic(s: Scenario, rank: int = 0) -> Traffic:
    """Return what one rank sends in a step."""
    return program(s, rank).traffic()
