"""Optional packages: which extra of the distribution has a package that is not installed."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, requires

from pipelines.errors import MissingPackageError

__all__ = ["DISTRIBUTION", "extra_of", "install_hint", "missing_package"]

#: Name of the distribution: `understudy` on PyPI is another project.
DISTRIBUTION = "understudy-recsys"

#: Distributions whose import name is not their own name.
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "causallearn": "causal-learn",
    "dbt": "dbt-core",
    "sb3_contrib": "sb3-contrib",
    "sklearn": "scikit-learn",
    "surprise": "scikit-surprise",
    "yaml": "pyyaml",
}

#: Extras that only join others, or that are not for running the program.
_JOINED = frozenset({"all", "dev", "ui"})


@cache
def _extras() -> dict[str, str]:
    """The first extra of each distribution that the core does without, by normalised name."""
    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # run from a checkout that is not installed
        lines = []
    extras: dict[str, str] = {}
    core = set()
    for line in lines:
        name, _, marker = line.partition(";")
        extra = re.search(r"""extra == ['"]([\w-]+)['"]""", marker)
        distribution = re.match(r"[\w.-]+", name.strip())
        if extra and distribution and extra[1] not in _JOINED and distribution[0] != DISTRIBUTION:
            extras.setdefault(_normalised(distribution[0]), extra[1])
        elif distribution and not extra:
            core.add(_normalised(distribution[0]))
    return {name: extra for name, extra in extras.items() if name not in core}


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def extra_of(module: str) -> str | None:
    """Extra that installs a module, by its import name; None if no extra has it.

    >>> extra_of("gymnasium.spaces"), extra_of("dagster"), extra_of("polars")
    ('env', 'pipeline', None)
    """
    top = module.partition(".")[0]
    return _extras().get(_normalised(_DISTRIBUTIONS.get(top, top)))


def install_hint(extra: str) -> str:
    """Command that installs an extra.

    >>> install_hint("env")
    "pip install 'understudy-recsys[env]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def missing_package(
    error: ModuleNotFoundError, *, where: str, extra: str | None = None
) -> MissingPackageError:
    """The error of a feature whose package is not installed, naming the extra.

    ``error`` is that of the import, ``where`` the feature, such as ``understudy run``. ``extra``
    has all the feature needs; default: the first one with this package.
    """
    module = error.name or str(error)
    top = module.partition(".")[0]
    extra = extra or extra_of(module)
    return MissingPackageError(
        f"the package {_DISTRIBUTIONS.get(top, top)} is not installed",
        where=where,
        hint=install_hint(extra) if extra else f"reinstall {DISTRIBUTION}",
        details={"module": module, "extra": extra},
    )
