"""The packages, with the dbt project as one of them; everything else is in pyproject.toml."""

from setuptools import find_namespace_packages, setup

OWN = ["pipelines*", "orchestration*", "sim*", "understudy*"]
#: A home with releases, which is data of the package `pipelines`.
SAMPLE = "pipelines.sample_release"

setup(
    packages=[
        *find_namespace_packages(include=OWN, exclude=[SAMPLE, f"{SAMPLE}.*"]),
        "orchestration.dbt",
    ],
    package_dir={"orchestration.dbt": "dbt"},
    package_data={
        "": ["py.typed", "*.csv", "*.yaml", "*.yml", "*.json", "*.txt", "*.jinja"],
        "sim.explore": ["site/*"],
        "pipelines": ["sample_release/**/*"],
        "orchestration.dbt": ["*.yml", "macros/**/*", "models/**/*", "tests/**/*"],
    },
)
