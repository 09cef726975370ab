"""What is described: frozen value objects that check themselves. No torch, no arithmetic of programs."""

from playbook.spec.cluster import Cluster, Gpu, Link, cluster, gpu, smallest_cluster
from playbook.spec.layout import Layout
from playbook.spec.model import Model, model
from playbook.spec.moe import Mla, Moe
from playbook.spec.parameters import Parameter
from playbook.spec.recipe import Recipe, recipe
from playbook.spec.scenario import Scenario
from playbook.spec.serving import Serving
from playbook.spec.workload import Lora, Workload

__all__ = [
    "Cluster",
    "Gpu",
    "Layout",
    "Link",
    "Lora",
    "Mla",
    "Model",
    "Moe",
    "Parameter",
    "Recipe",
    "Scenario",
    "Serving",
    "Workload",
    "cluster",
    "gpu",
    "model",
    "recipe",
    "smallest_cluster",
]
