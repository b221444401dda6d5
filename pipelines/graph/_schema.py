"""Edge types of a domain's graph, read from ``data/schema.yaml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import polars as pl

from pipelines.errors import ConfigError
from pipelines.packaged import packaged_yaml

#: Keys of a relation's line that are fields of another name.
_FIELDS = {"head": "head_type", "tail": "tail_type", "from": "origin", "as": "form"}


@dataclass(frozen=True, slots=True)
class EdgeType:
    """A relation between two node types, and what its edges are made from."""

    #: The edge's signature.
    head_type: str
    relation: str
    tail_type: str
    #: ``interactions``, ``ratings``, ``sentiments``, ``items``, ``users`` or ``user_tags``.
    origin: str
    #: Name of the relation from tail to head, if it has one of its own.
    inverse: str | None = None
    #: Interactions that count: ``all``, ``liked``, ``disliked`` or a Boolean column's name.
    where: str = "all"
    #: Column with the values, for edges from a table.
    column: str | None = None
    #: Prefix of the made nodes' ids; None if the values are item ids.
    node: str | None = None
    #: Conversion of a value into a node: ``text``, ``year``, ``month`` or ``price``.
    form: str = "text"
    #: True if the source may lack the column or table.
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a path: a relation walked from one node type to another."""

    #: Edge in the direction of the walk. ``relation`` is spelled ``^name`` if it is walked against
    #: its direction and has no inverse of its own.
    head_type: str
    relation: str
    tail_type: str
    #: The edge type whose matrix holds the step.
    edge: EdgeType
    #: True if that matrix is to be transposed.
    backward: bool

    @property
    def inverse(self) -> Step:
        """The same step, walked back."""
        if self.backward:
            name = self.edge.relation
        else:
            name = self.edge.inverse or f"^{self.edge.relation}"
        return Step(self.tail_type, name, self.head_type, self.edge, not self.backward)


@dataclass(frozen=True)
class DomainSchema:
    """Every edge type of a domain."""

    #: Such as ``movies``.
    domain: str
    #: Node type of its items, such as ``Movie``.
    item_type: str
    #: The edge types, in the file's order.
    edges: tuple[EdgeType, ...]
    #: Bounds between price bands, ascending (currency of the source).
    price_bounds: tuple[float, ...] = ()

    @cached_property
    def signatures(self) -> frozenset[tuple[str, str, str]]:
        """Every allowed (head type, relation, tail type), inverses included."""
        forward = {(e.head_type, e.relation, e.tail_type) for e in self.edges}
        back = {(e.tail_type, e.inverse, e.head_type) for e in self.edges if e.inverse}
        return frozenset(forward | back)

    @cached_property
    def node_types(self) -> tuple[str, ...]:
        """Every node type, alphabetical."""
        return tuple(sorted({t for e in self.edges for t in (e.head_type, e.tail_type)}))

    def edge(self, head_type: str, relation: str) -> EdgeType:
        """The edge type written from `head_type` under that (forward) name.

        Raises ConfigError if there is none.
        """
        step = self.step(head_type, relation)
        if step.backward:
            raise ConfigError(f"{relation} is an inverse", where=f"{self.domain}: {head_type}")
        return step.edge

    def step(self, head_type: str, relation: str) -> Step:
        """The step that a relation is from a node of a type.

        Raises ConfigError if the type has no such relation, naming those it has.
        """
        steps = self._steps
        if (head_type, relation) not in steps:
            have = sorted(name for kind, name in steps if kind == head_type)
            raise ConfigError(
                f"no relation {relation} leads from {head_type}",
                where=f"graph schema of {self.domain}",
                hint=f"from {head_type} there are {', '.join(have)}"
                if have
                else f"node types are {', '.join(self.node_types)}",
            )
        return steps[head_type, relation]

    @cached_property
    def _steps(self) -> dict[tuple[str, str], Step]:
        """Steps by their first node type and relation, which decide where one leads."""
        forward = [Step(e.head_type, e.relation, e.tail_type, e, False) for e in self.edges]
        steps = [step for both in forward for step in (both, both.inverse)]
        return {(step.head_type, step.relation): step for step in steps}


@cache
def load_schema(domain: str) -> DomainSchema:
    """The graph schema of a domain; ConfigError if it has none."""
    content = packaged_yaml("pipelines.graph", "schema.yaml")
    if domain not in content:
        raise ConfigError(
            "no graph schema for this domain", where=domain, hint=f"one of {', '.join(content)}"
        )
    return parse_schema(domain, content[domain])


def domains() -> tuple[str, ...]:
    """Domains that have a graph schema."""
    return tuple(packaged_yaml("pipelines.graph", "schema.yaml"))


def parse_schema(domain: str, section: Mapping[str, Any]) -> DomainSchema:
    """A schema from one section of the file."""
    edges = tuple(
        EdgeType(**{_FIELDS.get(key, key): value for key, value in line.items()})
        for line in section["relations"]
    )
    return DomainSchema(domain, section["item"], edges, tuple(section.get("price_bounds", ())))


def schema_violations(triples: pl.DataFrame | pl.LazyFrame, domain: str) -> pl.DataFrame:
    """Triples that the domain's schema does not allow, in their order.

    Their columns and ``problem``, one sentence.
    """
    schema = load_schema(domain)
    columns = ["head_type", "relation", "tail_type"]
    allowed = pl.DataFrame(sorted(schema.signatures), schema=columns, orient="row")
    frame = triples.lazy()
    names = frame.collect_schema().names()
    typed = frame.join(allowed.lazy(), on=columns, how="anti", maintain_order="left").with_columns(
        problem=pl.format(
            f"the {domain} graph has no relation {{}} from {{}} to {{}}",
            "relation",
            "head_type",
            "tail_type",
        )
    )
    return typed.select(*names, "problem").collect(engine="streaming")


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
def load_metapaths(domain: str) -> MetaPaths:
    """The declared meta-paths of a domain; ConfigError if it has none."""
    content = packaged_yaml("pipelines.graph", "metapaths.yaml")
    if domain not in content:
        raise ConfigError(
            "no meta-paths for this domain", where=domain, hint=f"one of {', '.join(content)}"
        )
    return parse_metapaths(load_schema(domain), content[domain])


def parse_metapaths(
    schema: DomainSchema, section: Mapping[str, Sequence[Mapping[str, Any]]]
) -> MetaPaths:
    """Meta-paths from one domain's section of the file.

    Raises :class:`ConfigError` if a step is no relation of the schema.
    """
    items, users = [], []
    for line in section.get("items") or ():
        if "half" in line:
            left = right = _walk(schema, schema.item_type, line["half"])
        else:
            steps = _walk(schema, schema.item_type, line["path"])
            cut = len(steps) // 2
            left, right = steps[:cut], tuple(step.inverse for step in reversed(steps[cut:]))
        items.append(MetaPath(schema.domain, line["name"], left, right))
    for line in section.get("users") or ():
        left = _walk(schema, "User", line["user"])
        right = _walk(schema, schema.item_type, line["item"])
        users.append(MetaPath(schema.domain, line["name"], left, right))
    return MetaPaths(schema.domain, tuple(items), tuple(users))


def _walk(schema: DomainSchema, start: str, relations: Sequence[str]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for relation in relations:
        steps.append(schema.step(start, relation))
        start = steps[-1].tail_type
    return tuple(steps)
