"""The explorers' pictures on a sheet: same data as the views, fewer details."""

from widgets.stills.collective import collective_png
from widgets.stills.memory import memory_png
from widgets.stills.pipeline import pipeline_png

__all__ = ["collective_png", "memory_png", "pipeline_png"]
