"""Reader of persona texts: liked and disliked genres, leniency and manner of rating, by rules.

For imported and hand-made personas whose fields are missing; a persona with fields is rated by
them. A text is cut into clauses. In a clause, cues of liking and disliking (words, idioms,
ratings on any scale) are assigned to the genres that it names, with negation, exceptions
("anything but"), comparisons ("prefers dramas to action") and pronouns ("horror? She hates it").
Clauses about somebody else, about the past or about what only might be are left out. A statement
that no rule covers reads as nothing. Its accuracy is in ``docs/personas.md``.

>>> text = "She adores comedies, but her husband prefers horror. A harsh critic."
>>> found = read_text(text, ("Comedy", "Horror"))
>>> found.likes, found.dislikes, found.leniency, found.manner
(('Comedy',), (), 'harsh', None)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import polars as pl

from pipelines.packaged import packaged_yaml
from pipelines.personas._phrases import taste_names

#: Values of the columns `leniency` and `manner` of personas.
LENIENCY = ("harsh", "average", "generous")
MANNER = ("narrow", "average", "wide", "polar", "uniform")
#: Tastes of products for prices, of which a persona has one at most.
PRICE_TASTES = frozenset({"price:low", "price:high"})

#: Shares of the top of a scale from which a rating is liking, and up to which it is disliking (set
#: by hand; people's mean rating is 0.7 of the top).
_HIGH, _LOW = 0.75, 0.4


@dataclass(frozen=True)
class Reading:
    """Fields that a text states."""

    #: Genres of the domain, in its order; a genre that is both is in neither.
    likes: tuple[str, ...] = ()
    dislikes: tuple[str, ...] = ()
    #: `generous` or `harsh`; None if nothing (or both) is stated.
    leniency: str | None = None
    #: `narrow` (few different ratings), `wide` (the whole scale), `polar` (best ratings for what is
    #: liked, bad ones for the rest) or `uniform` (everything alike); None if not stated.
    manner: str | None = None

    def __bool__(self) -> bool:
        return bool(self.likes or self.dislikes or self.leniency or self.manner)


@lru_cache(maxsize=65_536)
def read_text(text: str, genres: tuple[str, ...]) -> Reading:
    """Read one text with the genres of its domain."""
    votes: dict[str, set[int]] = {}
    tones: set[str] = set()
    manners: set[str] = set()
    others, alike, felt = 0, 0, set()
    praised = False
    context: tuple[str, ...] = ()
    for sentence in _SENTENCE.split(_normal(text)):
        words = _tokens(sentence, genres)
        if not (re.search("[A-Z]", words) or _RELEVANT.search(sentence)):
            context = ()
            continue
        clauses = list(_clauses(words))
        tone, manner = _tone(sentence, clauses, context)
        tones |= tone
        manners |= manner
        statements, context = _statements(clauses, context)
        # Of ratings of all or all others, a disliked genre may be an exception not understood.
        praised_all = any(s in ("REST", "ALL") and sign > 0 for s, sign, _ in statements)
        doubtful = bool(_EXCLUSIVE.search(words)) and not praised_all
        for subject, sign, marked in statements:
            if subject in ("REST", "KIND", "ALL") and sign < 0:
                others = max(others, 1 + marked)
            if subject == "ALL":
                alike = alike or sign * marked
                felt |= {sign} if _ALL_VIEWED.search(sentence) else set()
            elif subject[0] == "G" and not (doubtful and marked and sign < 0):
                genre = genres[int(subject[1:])]
                votes.setdefault(genre, set()).add(sign)
                praised = praised or (marked and sign > 0)
    likes = tuple(g for g in genres if votes.get(g) == {1})
    dislikes = tuple(g for g in genres if votes.get(g) == {-1})
    # A rating on one side at least: the rest may only be disliked, or the genre only liked.
    if likes and others and (praised or others > 1):
        tones, manners = set(), {"polar"}
    elif alike and not (likes or dislikes):
        tones, manners = {"generous" if alike > 0 else "harsh"}, {"uniform"}
    elif len(felt) == 1 and not (likes or dislikes or tones):
        tones = {"generous" if felt == {1} else "harsh"}  # likes or dislikes all there is
    return Reading(
        likes,
        dislikes,
        next(iter(tones)) if len(tones) == 1 else None,
        next(iter(manners)) if len(manners) == 1 else None,
    )


def genres_named(text: str, genres: tuple[str, ...]) -> tuple[str, ...]:
    """Genres that a text names, in the domain's order; for better or worse.

    >>> genres_named("Animated films, but no comedies.", ("Animation", "Comedy", "War"))
    ('Animation', 'Comedy')
    """
    named = {
        int(n)
        for s in _SENTENCE.split(_normal(text))
        for n in re.findall(r"\bG(\d+)", _tokens(s, genres))
    }
    return tuple(g for n, g in enumerate(genres) if n in named)


def read_fields(personas: pl.DataFrame, genres: Sequence[str]) -> pl.DataFrame:
    """Fields of personas, each read from the text where a persona has none.

    Texts of personas that state both leniency and manner are not read. A genre of the text is left
    out if a field states the opposite. Tables of older versions lack `leniency` and `manner`.
    Returns ``likes, dislikes, leniency, manner`` and ``read``: `fields` (the persona states at
    least one), `text` (its text did) or `nothing`.
    """
    names = ("leniency", "manner")
    absent = [pl.lit(None, pl.String).alias(n) for n in names if n not in personas.columns]
    fields = personas.with_columns(absent).select(pl.col("likes", "dislikes").fill_null([]), *names)
    stated = (pl.col("likes").list.len() > 0) | (pl.col("dislikes").list.len() > 0)
    for name in names:
        stated |= pl.col(name).is_not_null()
    complete = fields.select(pl.all_horizontal(pl.col(names).is_not_null())).to_series()
    vocabulary = tuple(genres)
    texts: Iterable[str | None] = [None] * fields.height
    if "description" in personas.columns:
        texts = personas["description"]
    readings = [
        Reading() if full or not text else read_text(text, vocabulary)
        for full, text in zip(complete, texts, strict=True)
    ]
    parsed = pl.DataFrame(
        {
            "text_likes": [list(r.likes) for r in readings],
            "text_dislikes": [list(r.dislikes) for r in readings],
            "text_leniency": [r.leniency for r in readings],
            "text_manner": [r.manner for r in readings],
            "text": [bool(r) for r in readings],
        },
        schema=_READ,
    )
    filled = [
        pl.when(pl.col(name).list.len() > 0)
        .then(name)
        .otherwise(pl.col(f"text_{name}").list.set_difference(opposite))
        .alias(name)
        for name, opposite in (("likes", "dislikes"), ("dislikes", "likes"))
    ]
    read = pl.when(stated).then(pl.lit("fields")).when("text").then(pl.lit("text"))
    return fields.hstack(parsed).select(
        *filled,
        *(pl.coalesce(name, f"text_{name}").alias(name) for name in names),
        read=read.otherwise(pl.lit("nothing")),
    )


_READ: dict[str, Any] = {
    **dict.fromkeys(("text_likes", "text_dislikes"), pl.List(pl.String)),
    **dict.fromkeys(("text_leniency", "text_manner"), pl.String),
    "text": pl.Boolean,
}


def reading_counts(
    personas: pl.DataFrame, genres: Sequence[str], *, max_texts: int = 1_000
) -> dict[str, int]:
    """Numbers of personas that are rated by fields, by text and by neither.

    Up to ``max_texts`` personas with fields, evenly spaced, have their texts compared with them.
    Counts are ``fields``, ``text``, ``nothing``, ``compared``, ``contradictions`` (the text
    dislikes a liked genre or the reverse, or is harsh where the field is generous; the field is
    used), ``all_liked`` and ``none_liked`` (personas that like every genre, or state dislikes
    only).
    """
    fields = read_fields(personas, genres)
    people = personas.filter(fields["read"] == "fields")
    step = max(1, -(-people.height // max_texts))
    vocabulary, apart, compared = tuple(genres), 0, 0
    if "description" in people.columns:
        stated = people.select(
            "description",
            "likes",
            "dislikes",
            pl.col("leniency") if "leniency" in people.columns else pl.lit(None).alias("leniency"),
        ).gather_every(step)
        for text, likes, dislikes, leniency in stated.iter_rows():
            reading = read_text(text or "", vocabulary)
            compared += 1
            opposite = {reading.leniency, leniency} == {"harsh", "generous"}
            apart += bool(set(likes) & set(reading.dislikes) or set(dislikes) & set(reading.likes)
                          or opposite)  # fmt: skip
    counts = dict(fields["read"].value_counts().iter_rows())
    liked = fields["likes"].list.len()
    return {
        **{name: int(counts.get(name, 0)) for name in ("fields", "text", "nothing")},
        "compared": compared,
        "contradictions": apart,
        "all_liked": int((liked >= max(len(vocabulary), 1)).sum()),
        "none_liked": int(((liked == 0) & (fields["dislikes"].list.len() > 0)).sum()),
    }


def noted_readings(stats: Mapping[str, Any]) -> dict[str, int]:
    """Sum over cohorts of the :func:`reading_counts` noted with a table of scores.

    >>> cohorts = {"a": {"personas": {"text": 1}}, "b": {"personas": {"text": 2}}}
    >>> noted_readings({"scoring": cohorts})
    {'text': 3}
    """
    total: Counter[str] = Counter()
    for cohort in stats.get("scoring", {}).values():
        total.update(cohort.get("personas", {}))
    return dict(total)


def reading_statement(counts: Mapping[str, int]) -> str:
    """Results of :func:`reading_counts` as sentences.

    >>> reading_statement({"fields": 3, "text": 1, "nothing": 1, "compared": 3,
    ...                    "contradictions": 1, "all_liked": 0, "none_liked": 2})
    'Rated by fields: 3 of 5; by what the reader finds in the text: 1; 1 state nothing that is read.
    Texts that contradict the fields: 1 of 3 compared; fields win. 2 state dislikes only.'
    """
    total = sum(counts[name] for name in ("fields", "text", "nothing"))
    out = (
        f"Rated by fields: {counts['fields']:,} of {total:,}; by what the reader finds in the "
        f"text: {counts['text']:,}; {counts['nothing']:,} state nothing that is read."
    )
    if counts["compared"]:
        out += (
            f" Texts that contradict the fields: {counts['contradictions']:,} of "
            f"{counts['compared']:,} compared; fields win."
        )
    flags = (("all_liked", "like every genre"), ("none_liked", "state dislikes only"))
    return out + "".join(f" {counts[key]:,} {text}." for key, text in flags if counts[key])


#: Words and phrases, by purpose.
_WORDS = packaged_yaml("pipelines.personas", "reader.yaml")
_KIN = _WORDS["people"].replace(", ", "|")


@cache
def _phrases(listing: str) -> re.Pattern[str]:
    """A pattern of the phrases of a list, longer ones first."""
    lists = {name: words.replace("/", "|") for name, words in _WORDS["words"].items()}

    def pattern(phrase: str) -> str:
        out = ""
        for word in phrase.split():
            options = [lists.get(w, re.escape(w)) for w in word.removesuffix("?").split("/")]
            part = "|".join(options).replace(r"\*", r"\w*").replace("@", r"[\w'-]+")
            if word.endswith("?"):
                out += f"(?: (?:{part}))?" if out else f"(?:(?:{part}) )?"
            else:
                out += f"{' ' * bool(out and not out.endswith(' )?'))}(?:{part})"
        return out

    longest = sorted(listing.split(", "), key=lambda p: (-len(p.split()), -len(p)))
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(pattern, longest))})(?![\w-])")


# --- names of genres -----------------------------------------------------------------


def _names_of(genre: str) -> set[str]:
    if genre in taste_names():
        return set(taste_names()[genre])
    name = genre.casefold().replace("\u2019", "'")
    # A compound is known by each of its parts: `Mystery & Thriller`, `Science Fiction, Fantasy`.
    parts = {p.strip() for p in re.split(r"\s*(?:&|,|/|\band\b)\s*", name) if p.strip()}
    names: set[str] = set()
    for part in {name, *parts}:
        names |= {part, *filter(None, _WORDS["other_names"].get(part, "").split(", "))}
        if part[-1] == "y" and part[-2:-1] not in "aeiou":
            names.add(part[:-1] + "ies")
        elif part[-1] != "s" and part not in ("sci-fi", "horror", "war", "action", "animation"):
            names.add(part + "s")
    return names


@cache
def _names(genres: tuple[str, ...]) -> tuple[dict[str, str], re.Pattern[str], re.Pattern[str]]:
    """Tokens of the genres' names, and patterns of the sure and the ambiguous names."""
    tokens: dict[str, str] = {}
    for n, genre in enumerate(genres):
        for name in _names_of(genre):
            tokens[name] = f"{tokens.get(name, '')}G{n}"
    people = set(_WORDS["ambiguous_people"].split(", "))
    unsure = people | set(_WORDS["ambiguous"].split(", "))

    def either(names: set[str]) -> str:
        return "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True)) or r"(?!)"

    beside = rf"(?:{either(unsure & set(tokens))})(?= (?:{_WORDS['things'].replace(', ', '|')})\b)"
    sure = rf"(?<![\w-])(?:(?:{either(set(tokens) - unsure)})(?![\w-])(?!')|{beside})"
    alone = (
        r"(?P<before>(?:^|[,:;]|\b(?:G\d+|(?:POS|NEG)(?: for| of| to)?|no|and|or|over|than|to)) *)"
        rf"(?P<name>{either(unsure & set(tokens) - people)})"
        r"(?= ?(?:$|[,:;(]|(?:and|or|HI|LO|MID|THAN)\b))"
    )
    return tokens, re.compile(sure), re.compile(alone)


# --- ratings -------------------------------------------------------------------------

_NOT = "not|no|never|hardly|rarely|seldom|barely|scarcely|without|neither|nor|nothing|none|nobody"
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_N = rf"\d+(?:\.\d+)?|{'|'.join(_NUMBERS)}"
_RATE = r"(?:rate|score|grade|mark|rank|evaluate)"
_COMPARED = (
    r"(?:more|higher|better|less|lower|fewer) than|above|over|exceeds?|below|under|"
    r"at (?:the very )?least"
)
_BOUND = rf"(?P<bound>(?:\b(?:{_NOT}|yet to)\b[\w ]{{0,40}}?)?\b(?:{_COMPARED}) )(?:an? )?"
#: Ratings that say what they are, and numbers that end a phrase of a sentence about ratings.
_MARK = re.compile(
    rf"(?:{_BOUND})?\b(?P<n>{_N})(?:(?: points?| stars?)?(?: out of a? ?| of |/)(?:possible )?"
    rf"(?P<top>{_N}|hundred)(?: points?| stars?)?(?!\w)| ?(?P<unit>%|[ -]stars?\b|[ -]points\b))"
)
_BARE = re.compile(
    rf"(?:{_BOUND}|(?P<before>\b(?:an?|(?:rating|score|grade|mark)s? of|at|averages?|films?|"
    r"movies?|books?|others?|rest|are|is|get|(?<!\d )to|g\d+) (?:big fat |perfect )?|: |\"|^))"
    rf"(?P<n>{_N})s?(?=\W*$|[,.;:!?\")]| (?:to (?!\d)|and|or|from|for|with|as|but|while|under|by|"
    r"in|every|whatever|is|not|if)\b)(?P<top>)(?P<unit>)"
)
_RATED = re.compile(
    rf"\b(?:{_RATE}|averages?|rating|scoring|grading|gives?|gave|gets?|award|films?|movies?|books?|"
    "games?|everything|anything|rest|others)|:"
)
_STARRED = re.compile(r"★+|(?<=\w )\*{1,5}(?= *(?:[,;.)]|$))")
_LETTER = re.compile(
    r"(?:\b(?:an?|straight|all|gets?|gives?|or|and|is|rated|grade of)|:) (?:an? )?(?P<g>[a-f])"
    r"(?:\+|'s)?(?=\W*$| ?[.,;:!?)\"]| (?:for|from|or|and|as|next|under|every|each|whatever|no|but|"
    r"while|period|in|to)\b)|(?<![\w'-])(?:an? )?(?P<sure>[a-f]) (?:plus|minus)\b"
)
#: Thumbs up and down, a scale of two answers; `up for dramas and down for the rest`.
_THUMB = re.compile(
    r"👍+|👎+|(?:\b(?:two|both|big|an?|enthusiastic|his|her|my|the) )*\bthumbs?[- ]"
    r"(?:(?:only|always|way|points?|pointing|goes|go|is|are) )*"
    r"(?:up|down|(?:at|to|towards?) the (?:floor|ground))\b(?! ?button)"
)


def _number(text: str) -> float:
    return (
        100.0 if text == "hundred" else float(text if text[0].isdigit() else _NUMBERS.index(text))
    )


def _mark(share: float, bound: str = "") -> str:
    """A rating; as a bound, `never more than 3 of 10` is low and `no less than 9` high."""
    upper = bool(re.search("more|above|over|exceed|higher|better", bound))
    if not bound:
        return " HI " if share >= _HIGH else " LO " if share <= _LOW else " MID "
    negated = bool(re.search(rf"\b(?:{_NOT}|yet)\b", bound))
    low = upper == negated and "least" not in bound
    plain = share <= 0.5 if low else share >= 0.6
    return f" {'ANY ' * negated}{'LO' if low else 'HI'} " if plain else " "


def _marked(sentence: str) -> str:
    """Ratings as tokens: numbers on any scale, stars, thumbs and letter grades."""
    text = re.sub(r"\b(?:single|lone|lonely) (?=star\b)", "1 ", sentence)
    text = re.sub(rf"\b({_N}) and a half\b", lambda m: f"{_number(m[1]) + 0.5:g}", text)
    scale = re.search(
        rf"\b(?:scale (?:of|from) (?:(?:{_N}) (?:to|-) )?|out of a )({_N}|hundred)\b", text
    )
    text = text.replace(scale[0], " ", 1) if scale else text
    biggest = max([float(v) for v in re.findall(r"\b\d+\b", text)], default=0.0)
    usual = _number(scale[1]) if scale else 100.0 if 10 < biggest <= 100 else 10.0

    def mark(match: re.Match[str]) -> str:
        parts = {name: part or "" for name, part in match.groupdict().items()}
        full = {"%": 100.0, "s": 5.0}.get(parts["unit"].strip(" -")[:1], usual)
        full = _number(parts["top"]) if parts["top"] else full
        bare = re.sub(rf"^(?:{_NOT})\b|\b(?:{_COMPARED})\b", " ", parts["bound"])
        token = _mark(_number(parts["n"]) / max(full, 1.0), parts["bound"])
        return f"{parts.get('before', '')}{bare}{token}"

    text = _STARRED.sub(lambda m: _mark(len(m[0]) / 5), text)
    if _THUMB.search(text):
        text = _THUMB.sub(
            lambda m: " HI " if m[0][0] == "👍" or m[0][-2:] == "up" else " LO ", text
        )
        text = re.sub(r"\band up(?= for\b)", " and HI ", text)
        text = re.sub(r"\band down(?= for\b)", " and LO ", text)
    text = _MARK.sub(mark, text)
    if scale or _RATED.search(text):
        text = _BARE.sub(mark, text)
    grades = {"a": " HI ", "b": " HI ", "c": " MID "}
    return _LETTER.sub(lambda m: grades.get(m["g"] or m["sure"], " LO "), text)


# --- from text to tokens -------------------------------------------------------------

_SENTENCE = re.compile(r"[.!?]+[\"')]*(?:\s+|$)|\s*\n\s*")
_WORD = re.compile(r"[A-Za-z0-9][\w+']*(?:-[A-Za-z]\w*)*|[,:;+]|(?<!\w)-(?!\w)")
_CONTRACTIONS = {
    r"\bcan't\b|\bcannot\b": "can not",
    r"\bwon't\b": "will not",
    r"n't\b": " not",
    r"'m\b": " am",
    r"'d\b": " would",
    r"\b(it|he|she|that|what|who|there)'s\b": r"\1 is",
    # `Horror? No thanks`: a short question is the subject of what follows.
    r"((?:^|[.!?;] )(?:[\w'-]+ ?){1,3})\?(?= )": r"\1 :",
}
_SCORED = (
    rf"\b(?:{_RATE}\w*|ratings?|scores?|gets?|receives?)((?: [\w'-]+){{0,4}}?) (?:is |are )?"
    "(?:very |accordingly )?"
)
_NEVER = rf"\b(?:{_NOT})\b((?: [\w'-]+){{0,6}}?)"
#: Cues that depend on what stands beside them, behind the lists of phrases.
_RULES = {
    r"\b(i|we|you|they|to|not|never|do|does|did|and|also|really|would|still|who|both|:|-) "
    r"(?:like|love|prefer)\b": r"\1 POS",
    r"\bPOS (?:no|neither|not)\b": "not POS",
    rf"{_SCORED}(?:high|highly|kindly|generously)\b": r"\1 HI",
    rf"{_SCORED}(?:low|lowly|poorly|badly|harshly|down|accordingly)\b": r"\1 LO",
    r"((?:G\d+)+ (?:[:(-] )?)(?:high|good|loved?)\b": r"\1 HI",
    r"((?:G\d+)+ (?:[:(-] )?)(?:low|bad|no|hated?)(?= *(?:$|[,;)]))": r"\1 LO",
    r"((?:G\d+)+(?: \w+)?) lacks?\b": r"\1 NEG",
    r"\bwith ([^,]{1,60}) (he|she|i) (?:is|am) hard to please\b": r"NEG \1 \2",
    r"\bno (?:more |single )?(?=G\d)": "NEG ",
    # Never below an A, nothing better than one star, never met a comedy he did not like.
    rf"{_NEVER} (?:below|under|short of|(?:less|lower|worse|fewer) THAN)(?: an?| the)? "
    r"(?:HI|MID)\b": r"\1 HI",
    rf"{_NEVER} (?:above|over|beyond|(?:more |higher |better )?THAN)(?: an?| the)? "
    r"(?:LO|MID)\b": r"\1 LO",
    r"\b(?:not|never) \w+ an? ((?:G\d+)+(?: \w+)?) (?:that )?(?:i|she|he|they) "
    r"(?:did|do|does) not \w+": r"POS \1",
    r"\bBUT (?:(?:the|an?|any|within|of|good) )+": "BUT ",
    r"((?:G\d+)+(?: \w+)?),? (?:excepted|being the (?:\w+ )?exceptions?)\b": r"BUT \1",
    r"\bwithout (?:[\w-]+ ){0,4}(?=G\d)": "BUT ",
    r"\bPOS ([^,]{1,40}?) less THAN (?:REST|ALL)\b": r"NEG \1",
    r"\bbeats?\b": "POS THAN",
    r"(\bPOS (?:[\w'-]+ ){1,5})to\b": r"\1THAN",
}
#: Lower bounds and double negations: a genre beside them is not disliked, and which mark it gets is
#: not stated plainly enough to be read.
_TWICE_NEGATED = re.compile(
    r"\b(?:worst|poorest|weakest) (?=G\d)|"
    r"\bno (?:single )?(?=(?:G\d+)+[^,;:]*\b(?:not|never|without|below|under|less|fewer)\b)|"
    r"\bonly (?=[^,;:]*\b(?:not|never|without|above|over|more than|higher than|beyond)\b)"
)
_EXCLUSIVE = re.compile(
    r"\b(?:REST|ALL|BUT|only|alone|unless|until|spared?|escapes?|exempt|exceptions?|instead)\b"
)
_VIEWED = r"(?:films?|movies?|books?|novels?|games?)"
_ALL_VIEWED = re.compile(rf"\b(?:every|each|all|any) (?:of the )?{_VIEWED}\b")
#: Without one of these, or a genre, a sentence states nothing.
_RELEVANT = re.compile(
    r"mark|rate|rating|scor|grad|scale|range|star|points|lenien|generous|harsh|strict|picky|critic|"
    r"demand|please|impress|satisf|forgiv|standards|fussy|sting|nitpick|exact|mercil|choosy|judge|"
    r"praise|complain|extreme|soft|kind|tough|lot to|every|in between|all or|all over|anything|"
    rf"whatever|they are all|the rest|other|what is|thumb|👍|👎|letter|\b{_VIEWED}\b"
)


def _normal(text: str) -> str:
    """Lower case, plain quotes, contractions written out."""
    low = text.casefold().translate({0x2019: "'", 0x2018: "'", 0x201C: '"', 0x201D: '"'})
    for pattern, words in _CONTRACTIONS.items():
        low = re.sub(pattern, words, low)
    return low


@lru_cache(maxsize=4_096)
def _tokens(sentence: str, genres: tuple[str, ...]) -> str:
    """A sentence with ratings, genres, cues and exceptions as tokens in capitals."""
    names, sure, alone = _names(genres)
    if not (sure.search(sentence) or alone.search(sentence) or _RELEVANT.search(sentence)):
        return sentence
    text = f" {' '.join(_WORD.findall(_marked(sentence)))} "
    if "+ " in text:
        text = re.sub(r"(^ *|, *)- ", r"\1 NEG ", re.sub(r"(^ *|, *)\+ ", r"\1 POS ", text))
    text = _phrases(_WORDS["not_genres"]).sub(" ", _REPORTED.sub(" ", text))
    text = _TWICE_NEGATED.sub("UNREAL ", sure.sub(lambda m: names[m[0]], text))
    text = text.replace("ANY", "" if re.search(r"G\d", text) else "ALL")
    for section in _WORDS["tokens"]:
        for cue, listing in section.items():
            text = re.sub(" {2,}", " ", _phrases(listing).sub(cue, text))
    if re.search(r"G\d|POS|NEG|HI|LO|:", text):
        text = alone.sub(lambda m: m["before"] + names[m["name"]], text)
    for rule, cue in _RULES.items():
        text = re.sub(rule, cue, text)
    if "anything but" in sentence and not set(text.split()) & set(_SIGNS):
        text = text.replace("BUT", "NEG")
    return re.sub(" {2,}", " ", text).strip()


# --- clauses and statements ----------------------------------------------------------

_SIGNS = {"POS": 1, "NEG": -1, "NUL": 0, "HI": 1, "LO": -1, "MID": 0}
_MARKS = ("HI", "LO", "MID")
_CUT = re.compile(
    r";|\bbecause\b|\b(?:as|for|since) (?=(?:she|he|i|they|it)\b)|"
    r"\b(?:but|although|though|while|whereas|however|yet|despite)\b|"
    r"(?=\b(?:finds?|considers?|thinks?|calls?) )|\b(?:and|but) (?=now\b|still\b)"
)
_STARTS = re.compile(r"(?:and )?(?:he|she|i|they|it|both|these|those)\b")
_PRONOUN = re.compile(r"\b(?:it|them|these|those)\b")
_ELLIPSIS = re.compile(
    r"^(?:and |but )?(?:(?:i|she|he|holder|\w+|the \w+(?: \w+)?) (?:do|does|did|am|is) not|"
    r"(?:well )?,? ?so (?:do|am|does|is) (?:i|she|he|\w+)|(?:not|never)(?: (?:her|him|me))?) *$"
)
#: Clauses about somebody else, and words that quote somebody about the persona.
_FOREIGN = re.compile(
    r"^(?:(?:and|so|while|because|since|as|the|his|her|my|their|our|all|best|most|many|\w+'s|of|,)"
    rf" )*(?:{_KIN})\b|\b(?:spouse|wife|husband|friend|partner) of\b|\bG\d+ POS will\b"
)
_REPORTED = re.compile(
    rf"\b(?:my |her |his |their )?(?:{_KIN}) (?:knows?|says?|tells?|calls?)\b(?: that)?"
)
_JOINS = frozenset((",", *_WORDS["joins"].split(", ")))
Statement = tuple[str, int, bool]


@dataclass
class _Clause:
    """Tokens of a clause."""

    words: list[str]

    def __post_init__(self) -> None:
        self.text = " ".join(self.words)
        self.cues = [n for n, w in enumerate(self.words) if w in _SIGNS]
        # Genres, the rest or everything by place; else items of an unnamed kind.
        self.subjects = {
            n: re.findall(r"G\d+", w) or [w]
            for n, w in enumerate(self.words)
            if w in ("REST", "ALL") or re.fullmatch(r"(?:G\d+)+", w)
        } or {n: ["KIND"] for n, w in enumerate(self.words) if re.fullmatch(_VIEWED, w)}

    def sign(self, cue: int) -> int:
        """Sign of a cue after negation."""
        sign, words, rated = _SIGNS[self.words[cue]], self.words, self.words[cue] in _MARKS
        for n in range(cue - 1, max(-1, cue - (9 if rated else 6)), -1):
            if (n in self.subjects and not rated) or words[n] in (*_SIGNS, ",", ":", "and"):
                break
            if re.fullmatch(_NOT, words[n]):
                return -1 if sign > 0 else 0
        return sign


def _clauses(text: str) -> Iterable[_Clause]:
    """Clauses of a sentence: cut at conjunctions, and at commas between full statements."""
    pieces: list[str] = []
    for piece in _CUT.split(text):
        judges = re.match(r"(?:find|consider|think|call)s? ", piece)
        if pieces and judges and not set(pieces[-1].split()) & set(_SIGNS):
            pieces[-1] += piece
        else:
            pieces.append(piece)
    for piece in pieces:
        first, *others = re.split(r" ?([,:]) ?", piece)
        last = _Clause(first.split())
        for mark, words in zip(others[::2], others[1::2], strict=True):
            part = _Clause(words.split())
            named = any(subject != ["KIND"] for subject in part.subjects.values())
            states = part.cues and (named or _PRONOUN.search(part.text))
            states = states or mark == ":" or _ELLIPSIS.search(part.text)
            closed = _ELLIPSIS.search(last.text) or (_FOREIGN.search(last.text) and part.cues)
            if closed or (last.cues and last.subjects and states):
                yield last
                last = part
            else:
                last = _Clause([*last.words, mark, *part.words])
        yield last


def _statements(
    clauses: Sequence[_Clause], context: tuple[str, ...]
) -> tuple[list[Statement], tuple[str, ...]]:
    """Statements of a sentence (subject, sign, whether of ratings) and its subjects.

    ``context`` are the subjects of the sentence before, which pronouns stand for.
    """
    out: list[Statement] = []
    sign, foreign, here = 0, False, False
    for clause in clauses:
        text, subjects = clause.text, clause.subjects
        other = bool(_FOREIGN.search(text))
        if _ELLIPSIS.search(text) and not subjects:
            sign *= -1 if re.search(r"\bnot\b|\bnever\b", text) else 1
            out += [(g, sign, False) for g in context if sign and foreign and not other]
            continue
        mentioned = tuple(s for place in sorted(subjects) for s in subjects[place])
        before, foreign = context, other
        if mentioned:
            context, here = ("KIND",) if "BUT" in clause.words else mentioned, True
        statements = list(_of_clause(clause, sign))
        # A pronoun stands for what this sentence named; beside a rating also for what an earlier
        # one did, if this one names no other subject before it.
        rated = [c for c in clause.cues if clause.words[c] in _MARKS]
        near = here or (rated and _STARTS.match(text))
        meant = _PRONOUN.search(text) or (rated and re.search(r"\bthey\b", text))
        if not mentioned and clause.cues and near and meant:
            read = clause.sign((rated or clause.cues)[0])
            statements = [(s, read, bool(rated)) for s in before if read]
        sign = statements[0][1] if statements else 0
        if not other and "UNREAL" not in clause.words:
            out += statements
    return out, context


def _of_clause(clause: _Clause, last: int) -> Iterable[Statement]:
    """Statements of a clause: each group of subjects with the cue before or behind it."""
    words, cues, subjects = clause.words, clause.cues, clause.subjects
    places = sorted(subjects)
    if not places:
        return
    if not cues:
        if places[0] and words[places[0] - 1] in ("not", "never") and last > 0:
            yield from ((s, -1, False) for s in subjects[places[0]])
        return
    cut = words.index("THAN") if "THAN" in words else len(words)
    if cut < len(words) and {"lower", "less", "worse"} & set(words):
        return
    groups = [[places[0]]]
    for place in places[1:]:
        joined = all(w in _JOINS for w in words[groups[-1][-1] + 1 : place])
        groups[-1].append(place) if joined else groups.append([place])
    first = groups[0][0] < cues[0]
    for number, group in enumerate(groups):
        if group[0] > cut:
            continue
        until = groups[number + 1][0] if number + 1 < len(groups) else len(words)
        behind = [c for c in cues if group[-1] < c < until]
        chosen = [c for c in cues if c < group[0]][-1:]
        if first:
            chosen = behind or (chosen if number == 0 else [])
        # `fond of dramas and comedies bore her`: the last group may belong to either.
        elif (
            words[chosen[0]] not in _MARKS
            and number == len(groups) - 1
            and ({clause.sign(c) for c in (*chosen, *behind)} >= {1, -1})
        ):
            continue
        # Of both kinds of statement, a rating is more specific than an attitude.
        chosen = [c for c in chosen if words[c] in _MARKS] or chosen
        signs = {clause.sign(c) for c in chosen}
        if len(signs) != 1 or signs == {0}:
            continue
        (sign,), marked = signs, any(words[c] in _MARKS for c in chosen)
        # `except dramas, which get five stars`: the mark is theirs.
        excepted = "BUT" in words[max(0, group[0] - 2) : group[0]]
        excepted = excepted and "which" not in words[group[-1] : max(group[-1], chosen[0])]
        if excepted:
            yield "REST", sign, marked
        for place in group:
            yield from ((s, -sign if excepted else sign, marked) for s in subjects[place])


# --- leniency and manner -------------------------------------------------------------

_MOST_OF = re.compile(
    r"\b(?:most|average|averages|mean|almost|nearly|ever|never|hardly|rarely|seldom)\b"
)
#: Words of sentences whose numbers are ratings; a share of an income is not one.
_OF_RATINGS = re.compile(
    rf"\b(?:{_RATE}[sd]?|ratings?|scor\w+|grad(?:es?|ing)|marks|stars?|points|reviews?\w*|critic\w*|"
    r"masterpieces?|opinions?|verdicts?)\b"
)


def _tone(
    sentence: str, clauses: Sequence[_Clause], context: Sequence[str]
) -> tuple[set[str], set[str]]:
    """Leniency and manner of a sentence that are not about a genre."""
    lists = _WORDS["tones"]
    tones: set[str] = set()
    manners = {m for m in ("wide", "narrow") if _phrases(lists[m]).search(sentence)}
    if _phrases(_WORDS["elsewhere"]).search(sentence):
        return tones, manners
    for value, other in (("generous", "harsh"), ("harsh", "generous")):
        for match in _phrases(lists[value]).finditer(sentence):
            if sentence.startswith("with ") and "to please" in match[0]:
                continue  # hard to please with some genre
            negated = re.search(
                r"\b(?:not|never|hardly|far from|no|anything but|without being)(?: \w+){0,2} $",
                sentence[: match.start()],
            )
            tones.add(other if negated else value)
    subjects = {s for c in clauses for group in c.subjects.values() for s in group}
    pronoun = _PRONOUN.search(sentence) or sentence.startswith("they ")
    if subjects - {"ALL", "KIND"} or (pronoun and context):
        return tones, manners
    words = {w for c in clauses for w in c.words}
    rated, most = _OF_RATINGS.search(sentence) or subjects, _MOST_OF.search(sentence)
    signs = {c.sign(n) for c in clauses for n in c.cues if c.words[n] in _MARKS and rated}
    if signs == {0} and "MID" in words and ("ALL" in subjects or most):
        manners.add("narrow")
    elif signs == {1} and re.search(r"\b(?:once|reserve[sd]?|(?<!the )only|for) ", sentence):
        tones.add("harsh")  # `five stars is for masterpieces`
    elif signs in ({1}, {-1}) and "UNREAL" not in words and ("KIND" not in subjects or most):
        tones.add("generous" if signs == {1} else "harsh")
    return tones, manners
