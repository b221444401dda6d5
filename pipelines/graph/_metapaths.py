"""Meta-paths, read from ``data/metapaths.yaml`` and checked against the domain's schema.

Every path is kept as two walks that meet at one node type: `left` from where the path starts,
`right` from the item it ends at. With L and R the counts of walks, (L·Rᵀ)[a, y] is the number
of path instances from a to y, and a path whose two walks are the same is symmetric.

>>> from pipelines.graph import load_metapaths
>>> load_metapaths("movies").items[4]
MetaPath(Movie-Genre-Movie: Movie -belongs-to-> Genre -contains-> Movie)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pipelines.errors import ConfigError
from pipelines.graph._schema import DomainSchema, Step, load_schema
from pipelines.packaged import packaged_yaml

#: Longest meta-path that may be declared (SimUSER, appendix D).
MAX_LENGTH = 4
_ITEM_KEYS = frozenset({"name", "path", "half", "source"})
_USER_KEYS = frozenset({"name", "user", "item", "source"})


@dataclass(frozen=True, repr=False)
class MetaPath:
    """A sequence of relations from an item or a user to an item."""

    #: Domain, and name within it.
    domain: str
    name: str
    #: The walk from the start (an item, or a user) to the node type in the middle.
    left: tuple[Step, ...]
    #: The walk from the final item to the same node type.
    right: tuple[Step, ...]

    @property
    def start_type(self) -> str:
        """Node type it starts at."""
        return self.left[0].head_type

    @property
    def steps(self) -> tuple[Step, ...]:
        """The whole path, as walked from its start."""
        return self.left + tuple(step.inverse for step in reversed(self.right))

    @property
    def relations(self) -> tuple[str, ...]:
        """Names of the relations in the order they are walked."""
        return tuple(step.relation for step in self.steps)

    @property
    def symmetric(self) -> bool:
        """True for a symmetric metapath: its second half reverses the first."""
        return self.left == self.right

    def __len__(self) -> int:
        return len(self.left) + len(self.right)

    def __repr__(self) -> str:
        arrows = "".join(f" -{step.relation}-> {step.tail_type}" for step in self.steps)
        return f"MetaPath({self.name}: {self.start_type}{arrows})"


@dataclass(frozen=True)
class MetaPaths:
    """The meta-paths of a domain."""

    #: Such as ``movies``.
    domain: str
    #: From item to item, for s(x, y).
    items: tuple[MetaPath, ...]
    #: From user to item, for s(u, y).
    users: tuple[MetaPath, ...]


@cache
def load_metapaths(domain: str, max_length: int = MAX_LENGTH) -> MetaPaths:
    """The declared meta-paths of a domain.

    Paths of more than ``max_length`` relations are left out.

    Raises ConfigError if the domain has no paths, if none is that short, or if a path is wrong:
    which path, which step, and what would be possible there.
    """
    content = packaged_yaml("pipelines.graph", "metapaths.yaml")
    if domain not in content:
        raise ConfigError(
            "no meta-paths for this domain", where=domain, hint=f"one of {', '.join(content)}"
        )
    every = parse_metapaths(load_schema(domain), content[domain])
    selected = MetaPaths(
        domain,
        tuple(path for path in every.items if len(path) <= max_length),
        tuple(path for path in every.users if len(path) <= max_length),
    )
    if not selected.items:
        raise ConfigError(f"no meta-path of {domain} is that short", where=f"length {max_length}")
    return selected


def parse_metapaths(
    schema: DomainSchema, section: Mapping[str, Sequence[Mapping[str, Any]]]
) -> MetaPaths:
    """Meta-paths from one domain's section of the file, checked against its schema.

    Raises :class:`ConfigError` as :func:`load_metapaths`.
    """
    items = tuple(_item_path(schema, line) for line in section.get("items") or ())
    users = tuple(_user_path(schema, line) for line in section.get("users") or ())
    names = [path.name for path in items + users]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ConfigError(f"two meta-paths are named {doubled[0]}", where=schema.domain)
    return MetaPaths(schema.domain, items, users)


def _item_path(schema: DomainSchema, line: Mapping[str, Any]) -> MetaPath:
    name = _named(schema, line, _ITEM_KEYS)
    if ("path" in line) == ("half" in line):
        raise _wrong(schema, name, "needs either `path` or `half`")
    if "half" in line:
        half = _walk(schema, name, schema.item_type, line["half"])
        return _checked(schema, MetaPath(schema.domain, name, half, half))
    steps = _walk(schema, name, schema.item_type, line["path"])
    if steps[-1].tail_type != schema.item_type:
        raise _wrong(schema, name, f"ends at {steps[-1].tail_type}, not at {schema.item_type}")
    if len(steps) == 1:
        raise _wrong(schema, name, "has one relation; the shortest path has two")
    cut = len(steps) // 2
    right = tuple(step.inverse for step in reversed(steps[cut:]))
    return _checked(schema, MetaPath(schema.domain, name, steps[:cut], right))


def _user_path(schema: DomainSchema, line: Mapping[str, Any]) -> MetaPath:
    name = _named(schema, line, _USER_KEYS)
    if not ("user" in line and "item" in line):
        raise _wrong(schema, name, "needs `user` and `item`")
    left = _walk(schema, name, "User", line["user"])
    right = _walk(schema, name, schema.item_type, line["item"])
    if left[-1].tail_type != right[-1].tail_type:
        raise _wrong(
            schema, name, f"does not meet: {left[-1].tail_type} against {right[-1].tail_type}"
        )
    return _checked(schema, MetaPath(schema.domain, name, left, right))


def _walk(
    schema: DomainSchema, name: str, start: str, relations: Sequence[str]
) -> tuple[Step, ...]:
    if not isinstance(relations, list) or not relations:
        raise _wrong(schema, name, "has no relations")
    steps: list[Step] = []
    kind = start
    for number, relation in enumerate(relations, start=1):
        try:
            step = schema.step(kind, str(relation))
        except ConfigError as error:
            raise _wrong(schema, name, f"step {number}: {error.what}", error.hint) from None
        steps.append(step)
        kind = step.tail_type
    return tuple(steps)


def _named(schema: DomainSchema, line: Mapping[str, Any], allowed: frozenset[str]) -> str:
    name = str(line.get("name") or "")
    if not name:
        raise ConfigError("a meta-path has no name", where=f"meta-paths of {schema.domain}")
    unknown = sorted(set(line) - allowed)
    if unknown:
        raise _wrong(schema, name, f"has unknown keys {unknown}", f"keys: {sorted(allowed)}")
    return name


def _checked(schema: DomainSchema, path: MetaPath) -> MetaPath:
    if len(path) > MAX_LENGTH:
        raise _wrong(schema, path.name, f"has {len(path)} relations; at most {MAX_LENGTH}")
    return path


def _wrong(schema: DomainSchema, name: str, fault: str, hint: str | None = None) -> ConfigError:
    return ConfigError(fault, where=f"meta-path {name} of {schema.domain}", hint=hint)
