"""The explorers' pictures as plotly figures, to take away: same numbers, same palette."""

from widgets.figures.collective import collective_figure
from widgets.figures.memory import memory_figure
from widgets.figures.pipeline import pipeline_figure

__all__ = ["collective_figure", "memory_figure", "pipeline_figure"]
