"""Edge types of a domain's graph, read from ``data/schema.yaml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import polars as pl

from pipelines.errors import ConfigError
from pipelines.packaged import packaged_yaml

_ORIGINS = frozenset({"interactions", "ratings", "sentiments", "items", "users", "user_tags"})
_FORMS = frozenset({"text", "year", "month", "price"})
#: Keys of a relation's line, and which of them must be there.
_KEYS = frozenset(
    {"head", "relation", "inverse", "tail", "from", "where", "column", "node", "as", "optional"}
)
_REQUIRED = ("head", "relation", "tail", "from")


@dataclass(frozen=True, slots=True)
class EdgeType:
    """A relation between two node types, and what its edges are made from."""

    #: The edge's signature.
    head_type: str
    relation: str
    tail_type: str
    #: Name of the relation from tail to head, if it has one of its own.
    inverse: str | None
    #: ``interactions``, ``ratings``, ``sentiments``, ``items``, ``users`` or ``user_tags``.
    origin: str
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
        out: dict[tuple[str, str], Step] = {}
        for edge in self.edges:
            forward = Step(edge.head_type, edge.relation, edge.tail_type, edge, False)
            for step in (forward, forward.inverse):
                key = (step.head_type, step.relation)
                if key in out:
                    raise ConfigError(
                        f"{step.relation} leads from {step.head_type} to two types",
                        where=f"graph schema of {self.domain}",
                        hint="a type and a relation must decide where an edge leads",
                    )
                out[key] = step
        return out


@cache
def load_schema(domain: str) -> DomainSchema:
    """The graph schema of a domain.

    Raises ConfigError if the domain has none or the file is wrong, naming the line's relation.
    """
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
    """A schema from one section of the file, checked."""
    edges = tuple(_edge(domain, line) for line in section["relations"])
    schema = DomainSchema(
        domain, section["item"], edges, tuple(float(b) for b in section.get("price_bounds", ()))
    )
    if schema.item_type not in schema.node_types:
        raise ConfigError(
            f"no relation has the item type {schema.item_type}", where=f"graph schema of {domain}"
        )
    if list(schema.price_bounds) != sorted(set(schema.price_bounds)):
        raise ConfigError("price_bounds must ascend", where=f"graph schema of {domain}")
    # Building the steps finds relations that lead to two types.
    schema.step(edges[0].head_type, edges[0].relation)
    return schema


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


def _edge(domain: str, line: Mapping[str, Any]) -> EdgeType:
    where = f"graph schema of {domain}: {line.get('head')} {line.get('relation')}"
    unknown = sorted(set(line) - _KEYS)
    missing = [key for key in _REQUIRED if not line.get(key)]
    if unknown or missing:
        raise ConfigError(
            f"a relation has unknown keys {unknown} or lacks {missing}",
            where=where,
            hint=f"keys are {', '.join(sorted(_KEYS))}",
        )
    origin, form = line["from"], line.get("as", "text")
    if origin not in _ORIGINS:
        raise ConfigError(
            f"from: {origin} is unknown", where=where, hint=f"one of {', '.join(sorted(_ORIGINS))}"
        )
    if form not in _FORMS:
        raise ConfigError(
            f"as: {form} is unknown", where=where, hint=f"one of {', '.join(sorted(_FORMS))}"
        )
    if origin in {"items", "users"} and not line.get("column"):
        raise ConfigError("a relation from a table needs a column", where=where)
    return EdgeType(
        head_type=line["head"],
        relation=line["relation"],
        tail_type=line["tail"],
        inverse=line.get("inverse"),
        origin=origin,
        where=line.get("where", "all"),
        column=line.get("column"),
        node=line.get("node"),
        form=form,
        optional=bool(line.get("optional", False)),
    )


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
