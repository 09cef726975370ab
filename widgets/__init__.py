"""Explorers for notebooks.

Controls at the left, a picture at the right, and real ranks at the press of a button.
"""

from widgets.collective_explorer import CollectiveExplorer
from widgets.memory_explorer import MemoryExplorer
from widgets.pipeline_explorer import PipelineExplorer

__all__ = ["CollectiveExplorer", "MemoryExplorer", "PipelineExplorer"]
