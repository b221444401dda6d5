"""The packages, with the dbt project as one of them; everything else is in pyproject.toml."""

from setuptools import find_namespace_packages, setup

OWN = ["pipelines*", "orchestration*", "sim*", "understudy*"]

setup(
    packages=[*find_namespace_packages(include=OWN), "orchestration.dbt"],
    package_dir={"orchestration.dbt": "dbt"},
    package_data={
        "": ["py.typed", "*.csv", "*.yaml", "*.yml", "*.json", "*.txt", "*.jinja"],
        "sim.explore": ["site/*"],
        "orchestration.dbt": ["*.yml", "macros/**/*", "models/**/*", "tests/**/*"],
    },
)
