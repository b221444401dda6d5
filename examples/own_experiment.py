"""An experiment of your own: do agents watch more of popular films than of random ones?

python examples/own_experiment.py
understudy experiment run examples/own_experiment.py:greeting
"""

from pipelines.config import load_settings
from sim.experiments import ExperimentContext, experiment
from sim.experiments.testing import check_experiment
from understudy import open_release


@experiment(
    question="Do agents watch more of what is popular?",
    conditions=("brain", "recommender"),
    figures={"watched": "share of the shown items that were watched, 0-1"},
)
def greeting(study, context, *, control: str = "random"):
    for name, brain, source in context.players():
        for shown in ("popular", control):
            visits = context.visits(brain, shown)
            who = visits.table("agents").collect().select("agent", "persona_id")
            views = visits.table("views").collect().join(who, on="agent", maintain_order="left")
            study.add((name, shown), source, views)
    study.against("watched", recommender=control)


if __name__ == "__main__":
    release = open_release("movies@latest")
    settings = load_settings()
    context = ExperimentContext(release, settings, settings.runtime.home, agents=20, pages=2)
    print(check_experiment(greeting, context).markdown(release=release.ref))
