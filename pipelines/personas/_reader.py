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
from functools import lru_cache
from typing import Any

import polars as pl

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
    lexicon = _lexicon(genres)
    votes: dict[str, set[int]] = {}
    tones: set[str] = set()
    manners: set[str] = set()
    rest_strength, uniform, praised = 0, 0, False
    felt: set[int] = set()
    state = _State()
    for sentence in _SENTENCE.split(_normal(text)):
        if not (lexicon.named_in(sentence) or _RELEVANT.search(sentence)):
            state = _State()
            continue
        clauses = list(_clauses(sentence, lexicon))
        tone, manner = _tone(sentence, clauses)
        tones |= tone
        manners |= manner
        state.begin()
        for clause in clauses:
            for subject, sign, marked in state.read(clause):
                if subject in (_REST, _KIND):
                    rest_strength = max(rest_strength, (1 + marked) * (sign < 0))
                elif subject == _ALL:
                    uniform = uniform or sign * marked
                    felt |= {sign} - {0} if _ALL_VIEWED.search(sentence) else set()
                else:
                    votes.setdefault(subject, set()).add(sign)
                    praised = praised or (marked and sign > 0)
    likes = tuple(g for g in genres if votes.get(g) == {1})
    dislikes = tuple(g for g in genres if votes.get(g) == {-1})
    # A rating on one side at least: the rest may only be disliked, or the genre only liked.
    if likes and rest_strength and (praised or rest_strength > 1):
        tones, manners = set(), {"polar"}
    elif uniform and not (likes or dislikes):
        tones, manners = {"generous" if uniform > 0 else "harsh"}, {"uniform"}
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
    lexicon = _lexicon(genres)
    marked = lexicon.marked(" ".join(_TOKEN_OR_SIGN.findall(text.casefold())))
    named = {g for token in _GENRE_TOKEN.findall(marked) for g in lexicon.genres_of(token)}
    return tuple(g for g in genres if g in named)


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


# --- from text to tokens -------------------------------------------------------------

#: Subjects beside genres: what was not named, everything, and items of an unnamed kind.
_REST, _ALL, _KIND = "\0rest", "\0all", "\0kind"


def _words(text: str) -> list[str]:
    """Words of a list in running text."""
    return text.split()


_NUMBERS = {
    w: n for n, w in enumerate(_words("zero one two three four five six seven eight nine ten"))
}
_N = rf"(\d+(?:\.\d+)?|{'|'.join(_NUMBERS)})"
_RATE = r"(?:rate|score|grade|mark|rank|evaluate)"
_MARK = r"(?:marks?|ratings?|scores?|grades?|stars|points)"
_VIEWED = r"(?:films?|movies?|books?|novels?|games?|titles?|ones?|content|stor(?:y|ies)|things?)"
_SENTENCE = re.compile(r"[.!?]+(?:\s+|$)|\s*\n\s*")


def _share(value: str, top: str | float) -> float:
    def number(text: str | float) -> float:
        return float(_NUMBERS.get(text, text)) if isinstance(text, str) else text

    return number(value) / max(number(top), 1.0)


def _mark(share: float) -> str:
    return " markpos " if share >= _HIGH else " markneg " if share <= _LOW else " markzero "


def _bounded(match: re.Match[str], share: float) -> str:
    """A rating that is a bound: `never more than 3 of 10` is low, `no less than 9` high."""
    bound = match["bound"] or ""
    stripped = re.sub(rf"^(?:{_NOT})\b|\b(?:{_COMPARED})\b", " ", bound)
    return stripped + _bound_mark(bound, share)


def _bound_mark(bound: str, share: float) -> str:
    upper = bool(re.search(r"more|above|over|exceed|higher|better", bound))
    lower = bool(re.search(r"less|below|under|lower|fewer|least", bound))
    negated = bool(re.search(rf"\b(?:{_NOT})\b", bound)) or (
        "exceed" in bound and bool(re.search(r"seldom|rarely|hardly", bound))
    )
    if upper and negated:
        return " markneg " if share <= 0.5 else " "
    if lower and (negated or "least" in bound):
        return " markpos " if share >= 0.6 else " "
    if upper:
        return " markpos " if share >= 0.6 else " "
    if lower:
        return " markneg " if share <= 0.5 else " "
    return _mark(share)


_NOT = r"not|no|never|hardly|rarely|seldom|barely|scarcely|without|neither|nor|nothing|none|nobody"
_COMPARED = (
    r"more than|above|over|exceeds?|higher than|better than|less than|below|under|lower than|"
    r"fewer than|at the very least|at least"
)
_BOUND = rf"(?P<bound>(?:\b(?:{_NOT})\b[\w ]{{0,40}}?)?\b(?:{_COMPARED})\b )?"
_ADVERBS = re.compile(
    r"\b(?:consistently|always|invariably|usually|frequently|often|regularly|typically|generally|"
    r"without (?:fail|exception)|every time|each time|(?:never|not) fail(?:s|ed|ing)? to|"
    r"not only|actively|really|truly|simply|absolutely|honestly|totally|kind of|in (?:her|his|my) "
    r"(?:view|book|opinion)|at all costs|of all|hardly ever(?= miss)|for my money|hands down|"
    r"nine times out of ten|years ago)\b"
)
#: Idioms and words in order, each replaced by a token: `cue` for attitudes, `mark` for ratings.
_IDIOMS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"\b(?:{pattern})" if not pattern.startswith("^") else pattern), f" {token} ")
    for pattern, token in (
        (r"in love\b|love at\b|would (?:like|love|prefer) to\b", ""),
        # Neither liked nor disliked.
        (r"(?:do|does|did) not mind\b|take or leave|indifferent\b|unsure about\b|meh\b|"
         r"not (?:hate|dislike|avoid|loathe)\b|never avoids?\b|no preference\b|"
         r"pretend(?:s|ed)? to\b|now and then\b", "cuezero"),
        # Not of the present or not of this world.
        (r"used to\b|once\b(?! (?:per|every|an?) (?:day|week|month|year|decade|while|hour))|"
         r"historically\b|formerly\b|previously\b|"
         r"not anymore\b|(?:past|former) favou?rites?\b|in (?:college|the past)\b|"
         r"grew up on\b|as a child\b|when (?:she|he|i) was\b|moved on from\b|"
         r"(?:wish(?:es)?|thought|expected|hoped|tried)\b|might\b|should\b|went in\b", "unreal"),
        # Comparisons with everything.
        (r"sooner watch paint dry than\b|(?:nothing|no genre) (?:is )?worse than\b|"
         r"(?:few|no) things? (?:bore|annoy|irritate)s? (?:me|her|him) more than\b|"
         r"(?:would|could) not pay (?:me|her|him) to\b|never (?:cared|cares|care) for\b|"
         r"over my dead body\b", "cueneg"),
        (r"nothing (?:is )?(?:better than|beats|tops|like)\b|no (?:other )?genre comes close to\b|"
         r"(?:not|never) (?:get enough of|live without|imagine [\w ]{1,20} without|resist)\b|"
         r"never (?:gets? |grows? )?tire[sd]?(?: of)?\b|never (?:miss|skip)(?:es|s)?\b|"
         r"never (?:disappoint|bore|tire|fail)(?:s|ed)?\b|not say anything bad about\b|"
         r"(?:never|not) met an? (?=\w+ (?:i|she|he) (?:did|do|does) not like)|"
         r"as much as anyone\b", "cuepos"),
        (r"(?:likes?|enjoys?) (?=[^,]{1,30} less than (?:anything|\x00rest))", "cueneg"),
        (r"(?:less|more) than (?:anything(?: else)?|\x00rest)|(?:did|do|does) not like"
         r"(?=,? *$)", ""),
        (r"no to\b|(?:never|rarely|seldom|hardly|(?:do|does|will) not) (?:ever )?(?:watch|read|"
         r"play)"
         r"(?:e?s)?\b|(?<=with )(?=[^,]{1,60} (?:he|she|i) (?:is|am) hard to please)",
         "cueneg"),
        (r"occasionally\b", "unreal"),
        # Several words.
        (r"not (?:stand|bear|abide|stomach|endure|tolerate|take)\b|no (?:patience|time|use|love|"
         r"interest|stomach)(?: for| with| in)?\b|little (?:patience|time|use|love|interest)"
         r"(?: for| with| in)?\b|(?:stay|steer|keep|shy)(?:s|ing|ies)? (?:away from|clear of)\b|"
         r"shies away from\b|(?:turned|put) off by\b|sick of\b|fed up with\b|(?:do|does) nothing "
         r"for\b|leave(?:s)? (?:her|him|me|them|\w+) (?:cold|unmoved)\b|waste of (?:time|an?)\b|"
         r"(?:roll|rolls) (?:her|his|my|their) eyes\b|to sleep\b|(?:fall|falls) asleep\b|"
         r"snooze fest\b|hard pass\b|no thanks?\b|no way\b|not for (?:me|her|him|them)\b|"
         r"takes? no pleasure in\b|thinks? (?:little|poorly) of\b|low opinion of\b|"
         r"low regard\b|low(?:est)? interest in\b|freaks? (?:me|her|him) out\b|so over\b|"
         r"least favou?rite\b|(?:likes?|enjoys?) least\b|not get\b|"
         r"do not get (?:me|her|him) started\b|small on\b|must avoid\b|bottom genres?\b|"
         r"childish and|wasted on\b|watch(?:es)? little\b|give up\b|do without\b|"
         r"(?:tears?|rips?) (?:[\w\x00]+ ){1,3}?(?:apart|to (?:pieces|shreds))\b|fuming\b|"
         r"nothing (?:nice|good|kind) to say\b|advise against\b|trash(?:es)?\b|rubbish\b|"
         r"hard to please\b(?= (?:with|by))|(?:genres? )?to avoid\b", "cueneg"),
        (r"soft spot for\b|weakness for\b|sucker for\b|look(?:s|ing)? forward to\b|big on\b|"
         r"(?:am|is|are|really|and) into\b|into(?= :)|not enough of\b|cares? for\b|interested in\b|"
         r"goes for\b|go for\b|lives? for\b|swears? by\b|crazy about\b|mad about\b|"
         r"yes to\b|thinks? (?:highly|well) of\b|high opinion of\b|high regard\b|"
         r"high(?:est)? interest in\b|guilty pleasures?\b|happy place\b|(?:my|her|his) jam\b|"
         r"head over heels\b|gush(?:es)? over\b|sings? the praises of\b|on a pedestal\b|"
         r"would marry\b|to the skies\b|is where it is at\b|any day of the week\b|yes please\b|"
         r"time well spent\b|i am in\b|"
         r"worth (?:my|her|his) time\b|(?:gravitat|drift)\w* toward\w*|cannot wait for\b|"
         r"must see\b|top genres?\b|(?:take|takes|taking) (?:great )?pleasure in\b|all day long\b|"
         r"full of\b|puts? (?:her|him|me) in a good mood\b|mak(?:e|es) (?:her|him|me) laugh\b|"
         r"sought out\b|seeks? out\b|loves? (?:for|of)\b|the best thing\b|like most\b|likes most\b|"
         r"would watch any\b|by the dozen\b|chef's kiss\b|idea of a perfect\b|rave(?:s|d)? about\b|"
         r"would (?:rather|sooner) (?:watch|have|see|read|play|choose)\b|(?:pick|choose)s?\b|"
         r"would take\b", "cuepos"),
        # Ratings in words.
        (r"(?:near|at|towards?) the (?:very )?top\b|as high as (?:possible|(?:i|he|"
         r"she) (?:\w+ )?can)\b",
         "markpos"),
        (r"marks? (?:it|them|\w+) down\b|as low as (?:possible|(?:i|he|she) (?:\w+ )?can)\b",
         "markneg"),
        (r"(?:near|at|towards?) the (?:very )?bottom\b", "markneg"),
        (r"(?:highest|top|best|full|perfect|maximum|high|good|great|excellent|generous|glowing|"
         rf"above average|(?<=the )same high) (?:possible )?{_MARK}\b(?! of)|maximum\b|"
         r"(?:full|all (?:of )?(?:the|its|her|his|their)) stars\b|(?:full )?row of stars\b|"
         r"(?:perfect|highest|top) ones\b", "markpos"),
        (r"(?:lowest|worst|rock bottom|minimum|low|poor|bad|harsh|terrible|dismal|bottom|"
         rf"below average) (?:possible )?{_MARK}\b(?! of)|the worst\b(?=,| *$)|minimum\b|"
         r"(?:single|lonely|lone) star\b|"
         r"(?:lowest|worst|bottom) ones\b", "markneg"),
    )
)  # fmt: skip
_LIKING = _words(
    "loves loved loving adores? adored adoring enjoy\\w* likes liked liking favou?rs? "
    "favou?red favou?rites? fans? fond keen craves? cherish\\w* devours? relish\\w* "
    "appreciat\\w* passion\\w* enthusias\\w* drawn addicted obsessed treasures? weakness "
    "delight\\w* eager hooked thrill(?:s|ed) prefers? preferred preferences? admir\\w* "
    "enthrall?s? fascinat\\w* excit\\w* charming joy recommends? favou?rabl[ey] positively "
    "lover partial captivat\\w* interests? converts? gems? praises? wins? cherished "
    "brilliant great loveable yes"
)
_DISLIKING = _words(
    "hates? hated hating dislikes? disliked disliking detests? detested loath\\w* "
    "despis\\w* avoid(?:s|ed|ing)? bor(?:e|es|ed|ing) shuns? skip(?:s|ped)? refus\\w* "
    "abhors? avers\\w+ allergic tir(?:e|es|ed|ing) tiresome annoy\\w* irritat\\w* scorns? "
    "wary squeamish dull tedious unbearable insufferable overrated repels? repulsed "
    "disdain\\w* hatred negatively unfavou?rabl[ey] unreceptive awful ugh disappoint\\w* "
    "unimpressed worst garbage"
)
_VERBLIKE = re.compile(
    r"(?<![\w])(?P<before>i|we|you|they|to|not|never|do|does|did|and|also|really|would|still|"
    r"who|both|:|-) "
    r"(?P<cue>like|love|prefer)\b"
)
_CUES = (
    (re.compile(rf"\b(?:{'|'.join(_LIKING)})\b"), "cuepos"),
    (re.compile(rf"\b(?:{'|'.join(_DISLIKING)})\b"), "cueneg"),
)
_EXCEPT = re.compile(
    r"\b(?:outside(?: of)?|other than|anything but|everything but|except(?: for)?|excluding|"
    r"apart from|aside from|with the exception of|all but|besides|barring|bar|save for|not within|"
    r"whatever (?:is|are) not|(?:that|which) (?:is|are) (?:not|no)|"
    r"if (?:it|this|that) is (?:not|no)|"
    r"(?:that|which|whatever|anything|everything) (?:lacks?|(?:has|have) no)|lacking|"
    r"not (?:in|of))\b(?: the| an?| any| within)*|"
    r"\bwithout (?:[\w-]+ ){0,4}(?=\x00g)"
)
_THAN = re.compile(
    r"(?<=\bcuepos)(?P<a> (?:[\w\x00-]+ ){1,5})(?:to|over|rather than|instead of)\b|"
    r"\b(?:rather than|instead of|more than|over|higher than|better than|than)\b|>"
)
_KIN = (
    r"husband|wife|spouse|partner|boyfriend|girlfriend|sister|brother|mother|father|mom|dad|mum|"
    r"son|daughter|kids|children|parents?|grandmother|grandfather|friends?|colleagues?|cousins?|"
    r"everyone|everybody|critics|audiences?|people|members|neighbou?rs?|roommates?|aunt|uncle|"
    r"household|others"
)
_FOREIGN = re.compile(
    rf"^(?:(?:and|so|while|because|since|as|the|his|her|my|their|our|all|best|most|many|\w+'s|"
    rf"of|,) )*"
    rf"(?:{_KIN})\b(?! (?:know|knows|say|says|tell|tells|call|calls)\b)|"
    r"\b(?:spouse|wife|husband|friend|partner) of\b|\bgenrex cuepos will\b"
)
_REPORTED = re.compile(
    rf"\b(?:my |her |his |their )?(?:{_KIN}) (?:know|knows|say|says|tell|tells|call|"
    rf"calls)\b(?: that)?"
)


def _normal(text: str) -> str:
    """Lower case, contractions written out, ratings and idioms as tokens."""
    low = text.casefold()
    for old, new in (("\u2019", "'"), ("\u2018", "'"), ("\u201c", '"'), ("\u201d", '"')):
        low = low.replace(old, new)
    low = re.sub(r"\bcan't\b|\bcannot\b", "can not", low)
    low = re.sub(r"\bwon't\b", "will not", low)
    low = re.sub(r"n't\b", " not", low)
    low = re.sub(r"\b(i)'m\b", r"\1 am", low)
    low = re.sub(r"\b(it|he|she|that|what|who)'s\b", r"\1 is", low)
    low = re.sub(r"'(?:d)\b", " would", low)
    low = re.sub(r"\bgimme\b", "i love", low)
    low = re.sub(r"\bnothing but\b", "exclusively", low)
    low = re.sub(r"\b(?:no longer|not any ?more)\b(?= \w)", "not", low)
    # `Horror? No thanks`: a short question is the subject of what follows.
    low = re.sub(r"((?:^|[.!?;] )(?:[\w'-]+ ?){1,3})\?(?= )", r"\1 :", low)
    low = _THUMBS.sub(_thumb, low)
    low = _numbers(low)
    return _ADVERBS.sub(" ", low)


#: Thumbs up and down, a scale of two answers; `up for dramas and down for the rest`.
_THUMBS = re.compile(
    r"👍+|👎+|(?:\b(?:two|both|big|an?|enthusiastic|his|her|my|the) )*\bthumbs?[- ]"
    r"(?:(?:only|always|way|points?|pointing|goes|go|is|are) )*"
    r"(?:up|down|(?:at|to|towards?) the (?:floor|ground))\b(?! ?button)(?P<other>(?: for "
    r"[\w' -]{1,40}?)? and (?:up|down)(?= for\b))?"
)


def _thumb(match: re.Match[str]) -> str:
    first = match[0].removesuffix(match["other"] or "")
    up = "👍" in first or first.endswith("up")
    mark, other_mark = (" markpos ", " markneg ") if up else (" markneg ", " markpos ")
    if not match["other"]:
        return mark
    return f"{mark}{match['other'].rpartition(' and ')[0]} and {other_mark}"


def _numbers(low: str) -> str:
    """Numbers, stars, percentages and letter grades as tokens of high, low and middling marks."""
    low = re.sub(rf"\b{_N} and a half\b", lambda m: f"{_share(str(m[1]), 1.0) + 0.5:g}", low)
    low = re.sub(r"\b(\d+) years?(?:[ -]old)?\b|\bage \d+\b|\bnine times out of ten\b", " ", low)
    low = re.sub(r"★+|(?<=\w )\*{1,5}(?= *(?:[,;.)]|$))", lambda m: _mark(len(m[0]) / 5), low)
    scale = re.search(rf"\bscale (?:of|from) (?:{_N} (?:to|-) )?{_N}\b", low)
    top = scale[2] if scale else None
    if scale:
        low = low.replace(scale[0], " ", 1)
        low = re.sub(r"\bon an? +", " ", low)

    def ratio(match: re.Match[str]) -> str:
        return _bounded(match, _share(match[2], match[3]))

    def percent(match: re.Match[str]) -> str:
        return _bounded(match, _share(match[2], 100.0))

    def counted(match: re.Match[str]) -> str:
        full = 5.0 if match["unit"].startswith("star") else top or 10.0
        return _bounded(match, _share(match[3] or match[2], full))

    low = re.sub(
        rf"{_BOUND}\b{_N}(?: (?:points|stars))?(?: (?:out )?of |/)(?:possible )?"
        rf"(?:{_N})(?: (?:points|stars))?\b",
        ratio,
        low,
    )
    low = re.sub(rf"{_BOUND}\b{_N} ?%", percent, low)
    low = re.sub(rf"\(?{_BOUND}\b{_N}(?: to {_N})?[ -](?P<unit>stars?|points)\b\)?", counted, low)
    biggest = max([float(v) for v in re.findall(r"\b\d+\b", low)] or [0.0])
    ends = top or (10.0 if biggest > 5 or not re.search(r"\d", low) else None)

    def bare(match: re.Match[str]) -> str:
        value = _share(match["n"].removesuffix("s"), 1.0)
        if ends is None and value > 1:
            return " "
        # A number above ten is one of a hundred where no scale is named.
        full = top or (100.0 if 10 < value <= 100 else ends or 10.0)
        return match["before"] + _mark(_share(match["n"].removesuffix("s"), full))

    plural = rf"(?P<n>\d+(?:\.\d+)?|(?:{'|'.join(_NUMBERS)})s?|zeroe?s)"
    if ":" not in low and not top and not _RATED.search(low):
        return _letters(low)
    low = re.sub(
        rf"(?P<before>\b(?:rating|score|grade|mark)s? of |"
        rf"\b(?:gets?|got|gives?|hands?|earns?|are|is|at) (?:(?!\d)[\w-]+ ){{0,5}}?(?:a |an )"
        rf"(?:big fat |perfect )?|\baverages? (?=\d)|\bget (?=tens|ones|zeros)|: ?|"
        rf"\b(?:at|film|films|others|rest|a) (?=\d))"
        rf"{plural}(?=\b(?![\w-])(?! to \d)(?! (?:year|time|child|films?|movies?)))",
        bare,
        low,
    )
    return _letters(low)


#: Words without which a bare number is no rating.
_RATED = re.compile(
    rf"\b(?:{_RATE}|averages?|rating|scoring|grading|gives?|gave|gets?|award|film|movie|book)"
)


def _letters(low: str) -> str:
    """Letter grades as tokens."""
    grade = r"(?P<g>[ab]\+?|[cdef])"
    steps = {"a": "markpos", "b": "markpos", "c": "markzero"}

    def letter(match: re.Match[str]) -> str:
        return f"{match['before']} {steps.get(match['g'][0], 'markneg')} "

    low = re.sub(rf"(?P<before>: ){grade}(?= *(?:[.,;\n]|$))", letter, low)
    low = re.sub(rf"(?P<before>\brated ){grade}(?= in\b)", letter, low)
    # `straight A's`, `get D's and F's`, `A plus`, `an A for comedies`; not `an a cappella choir`.
    low = re.sub(rf"(?P<before>\b(?:straight|all|gets?|gives?|and|or) ){grade}'s\b", letter, low)
    low = re.sub(rf"(?P<before>(?<![\w'-])(?:an? )?){grade} (?:plus|minus)(?![\w'-])", letter, low)
    return re.sub(
        rf"(?P<before>\b(?:an?|a straight|a grade of) ){grade}[+-]?(?= *(?:[,.;:!?)\"]|$)| (?:for|"
        r"from|or|and|as|next|under|every|each|whatever|no|but|while|period)\b)",
        letter,
        low,
    )


# --- clauses -------------------------------------------------------------------------

_CUT = re.compile(
    r"[;]|\bbecause\b|\b(?:as|for|since) (?=(?:she|he|i|they|it)\b)|\b(?:but|although|though|"
    r"while|whereas|however|yet|despite)\b|"
    r"(?=\b(?:finds?|considers?|thinks?|calls?) )|\b(?:and|but) (?=now\b|still\b)"
)
_JUDGES = re.compile(r"(?:find|consider|think|call)s? ")


@dataclass
class _Clause:
    """Tokens of a clause: words, and `(genres,)` in the place of their names."""

    words: list[str]
    named: dict[int, tuple[str, ...]]

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def cues(self) -> list[int]:
        return [n for n, w in enumerate(self.words) if w in _SIGNS]


_SIGNS = {"cuepos": 1, "cueneg": -1, "cuezero": 0, "markpos": 1, "markneg": -1, "markzero": 0}


def _clauses(sentence: str, lexicon: _Lexicon) -> Iterable[_Clause]:
    """Clauses of a sentence: cut at conjunctions, and at commas between whole statements."""
    pieces: list[str] = []
    for piece in _CUT.split(_tokens(sentence, lexicon)):
        if pieces and _JUDGES.match(piece) and not re.search(r"\b(?:cue|mark)\w", pieces[-1]):
            pieces[-1] += piece
        else:
            pieces.append(piece)
    for piece in pieces:
        parts: list[_Clause] = []
        for mark, text in zip(*[iter(["", *re.split(r" ?([,:]) ", piece)])] * 2, strict=True):
            part = _parsed(text, lexicon)
            last = parts[-1] if parts else None
            complete = last is not None and bool(last.cues) and bool(last.named)
            both = bool(part.cues) and bool(part.named)
            statement = (
                both or _ELLIPSIS.search(part.text) or (part.cues and _PRONOUN.search(part.text))
            )
            apart = (complete and (statement or mark == ":")) or (
                last is not None
                and bool(_ELLIPSIS.search(last.text) or (_FOREIGN.search(last.text) and part.cues))
            )
            if last is not None and not apart:
                last.named.update({n + len(last.words) + 1: g for n, g in part.named.items()})
                last.words += [mark, *part.words]
            else:
                parts.append(part)
        yield from parts


def _tokens(sentence: str, lexicon: _Lexicon) -> str:
    """The sentence with genres, exceptions, cues and comparisons as tokens."""
    text = f" {' '.join(_TOKEN_OR_SIGN.findall(sentence))} "
    if "+ " in text:
        text = re.sub(r"(^ *|, *)\+ ", r"\1 cuepos ", text)
        text = re.sub(r"(^ *|, *)- ", r"\1 cueneg ", text)
    text = _REPORTED.sub(" ", text)
    text = re.sub(
        r"\b(?:climate|legal|political|social|community|affirmative|collective|swift|in|"
        r"takes?|taking) action\b",
        " ",
        text,
    )
    text = _TWICE_NEGATED.sub(" unreal ", lexicon.marked(text))
    text = re.sub(
        r"\b(?:everything|anything|whatever) else\b(?: there is\b)?|\bwhatever is left\b|"
        r"\b(?:everything|anything) (?:that falls )?outside\b(?: of (?:that|it|them))?|"
        r"\bwhat is not(?: one of them)?\b|\b(?:all )?the other stuff\b|"
        r"\b(?:all|any|the) (?:the )?others?\b(?: kinds? of)?(?: "
        rf"{_VIEWED})?|\bthe rest\b|\b(?:every |any )?other (?:kinds? of )?"
        rf"(?:{_VIEWED}|kind)\b|\b{_VIEWED} of (?:every|any) other kind\b",
        f" {_REST} ",
        text,
    )
    for pattern, token in _IDIOMS:
        text = re.sub(" {2,}", " ", pattern.sub(token, text))
    text = re.sub(r"\banything but (\x00g\d+\x00)", r"cueneg \1", text)
    text = re.sub(
        rf"(\x00g\d+\x00(?: {_VIEWED})?),? (?:excepted|being the (?:\w+ )?exceptions?)\b",
        r" exceptx \1 ",
        text,
    )
    text = _EXCEPT.sub(" exceptx ", text)
    text = _VERBLIKE.sub(r"\g<before> cuepos", text)
    for cue, token in _CUES:
        text = cue.sub(token, text)
    text = _ALL_OF.sub(f" {_ALL} ", text)
    text = re.sub(" {2,}", " ", text)
    text = re.sub(r"\bcuepos (?:no|neither|not)\b", "not cuepos", text)
    text = re.sub(
        rf"\b(?:{_RATE}\w*|gets?|receives?)((?: [\w\x00-]+){{0,4}}?) "
        r"(?:very )?(?:high|highly|kindly|generously)\b",
        r"\1 markpos ",
        text,
    )
    text = re.sub(
        rf"\b(?:{_RATE}\w*|gets?|receives?)((?: [\w\x00-]+){{0,4}}?) (?:very |accordingly )?"
        r"(?:low|lowly|poorly|badly|harshly|down)\b",
        r"\1 markneg ",
        text,
    )
    text = re.sub(
        rf"\b{_MARK}((?: [\w\x00]+){{0,3}}?) (?:is|are) (?:very )?(?:high|good|generous)\b",
        r"\1 markpos ",
        text,
    )
    text = re.sub(
        rf"\b{_MARK}((?: [\w\x00]+){{0,3}}?) (?:is|are) (?:very )?(?:low|poor|bad)\b",
        r"\1 markneg ",
        text,
    )
    text = re.sub(r"(\x00g\d+\x00 (?:: |\( |- )?)(?:high|good|loved?)\b", r"\1 markpos ", text)
    text = re.sub(r"(\x00g\d+\x00 (?:: |\( |- )?)(?:low|bad|no|hated?)\b", r"\1 markneg ", text)
    text = re.sub(r"(\x00g\d+\x00) lacks?\b", r"\1 cueneg ", text)
    text = re.sub(rf"(\x00g\d+\x00 {_VIEWED}) lacks?\b", r"\1 cueneg ", text)
    text = re.sub(r"\bno (?:more |single )?(?=\x00g)", " cueneg ", text)
    text = re.sub(r"\bbeats?\b", " cuepos thanx ", text)
    return _THAN.sub(lambda m: f"{m['a'] or ' '}thanx ", text)


#: Lower bounds, exceptions and double negations: a genre beside them is not disliked, and which
#: mark it gets is not stated plainly enough to be read.
_TWICE_NEGATED = re.compile(
    r"\bunless\b|\bexceptions? to\b|\b(?:worst|poorest|weakest) (?=\x00g)|\bwould have to be\b|"
    r"\bno (?:single )?(?=\x00g\d+\x00[^,;:]*\b(?:not|never|without|below|under|less|fewer)\b)|"
    r"\bonly (?=[^,;:]*\b(?:not|never|without|above|over|more than|higher than|beyond)\b)"
)
_TOKEN_OR_SIGN = re.compile(r"[a-z0-9][\w+']*(?:-[a-z]\w*)*|[,:;>+]|(?<!\w)-(?!\w)")
_GENRE_TOKEN = re.compile("\x00g\\d+\x00")
_STARTS = re.compile(r"(?:and )?(?:he|she|i|they|it|both|these|those)\b")
_PRONOUN = re.compile(r"\b(?:it|them|these|those)\b")
_ELLIPSIS = re.compile(
    r"^(?:and |but )?(?:(?:i|she|he|holder|\w+|the \w+(?: \w+)?) (?:do|does|did|am|is) not|"
    r"so (?:do|am|does|is) (?:i|she|he|\w+)|(?:not|never)(?: (?:her|him|me))?) *$"
)


_ITEM_WORDS = frozenset(
    _words(
        "film films movie movies picture pictures book books novel novels game games title titles"
    )
)


def _parsed(text: str, lexicon: _Lexicon) -> _Clause:
    words = text.split()
    named = {n: genres for n, w in enumerate(words) if (genres := lexicon.genres_of(w))}
    for n, word in enumerate(words):
        if word in (_REST, _ALL):
            named[n] = (word,)
    if not named:
        named = {n: (_KIND,) for n, w in enumerate(words) if w in _ITEM_WORDS}
    return _Clause(words, named)


# --- from clauses to statements ------------------------------------------------------


class _State:
    """Context of earlier clauses, for pronouns and ellipses."""

    def __init__(self) -> None:
        self.genres: tuple[str, ...] = ()
        self.sign = 0
        self.foreign = False
        self.here = False

    def begin(self) -> None:
        """A new sentence: nothing is elliptic across its start, pronouns are."""
        self.sign, self.foreign, self.here = 0, False, False

    def read(self, clause: _Clause) -> Iterable[tuple[str, int, bool]]:
        """Statements of a clause: subject, sign, and whether it is about ratings."""
        text = clause.text
        everyone = re.sub("\x00g\\d+\x00", "genrex", text)
        foreign = bool(_FOREIGN.search(everyone))
        if _ELLIPSIS.search(text) and not clause.named:
            sign = self.sign * (-1 if re.search(r"\bnot\b|\bnever\b", text) else 1)
            if sign and not foreign and self.foreign:
                yield from ((g, sign, False) for g in self.genres)
            return
        mentioned = tuple(g for place in sorted(clause.named) for g in clause.named[place])
        before, last = self.genres, self.sign
        if mentioned:
            self.genres = (_KIND,) if "exceptx" in clause.words else mentioned
            self.here = True
        self.foreign = foreign
        statements = list(_statements(clause, last))
        # A pronoun stands for what this sentence named; beside a rating also for what an earlier
        # one did, if this one names no other subject before it.
        rated = [c for c in clause.cues if clause.words[c].startswith("mark")]
        near = self.here or (rated and _STARTS.match(text))
        meant = bool(_PRONOUN.search(text) or (rated and re.search(r"\bthey\b", text)))
        if not mentioned and clause.cues and before and near and meant:
            sign = _sign(clause, rated[0] if rated else clause.cues[0])
            statements = [(g, sign, bool(rated)) for g in before if sign]
        self.sign = statements[0][1] if statements else 0
        if not foreign and "unreal" not in clause.words:
            yield from statements


def _statements(clause: _Clause, last: int) -> Iterable[tuple[str, int, bool]]:
    words, cues = clause.words, clause.cues
    places = sorted(clause.named)
    cut = next((n for n, w in enumerate(words) if w == "thanx"), len(words))
    if not places:
        return
    if not cues:
        bare = places[0] and words[places[0] - 1] in ("not", "never")
        if bare and last > 0:
            yield from ((g, -1, False) for g in clause.named[places[0]])
        return
    if cut < len(words) and re.search(r"\b(?:lower|less|worse|as much as)\b", clause.text):
        return
    if re.search(r"\bnot\b.*\bas much as\b", clause.text):
        return
    groups = _groups(words, places)
    first = groups[0][0] < cues[0]
    for number, group in enumerate(groups):
        if group[0] > cut:
            continue
        after = [c for c in cues if c > group[-1]]
        until = groups[number + 1][0] if number + 1 < len(groups) else len(words)
        behind = [c for c in after if c < until]
        ahead = [c for c in cues if c < group[0]]
        if first:
            chosen = behind or ahead[-1:] if number == 0 or behind else []
        else:
            chosen = ahead[-1:]
            # `fond of dramas and comedies bore her`: the last group may belong to either.
            if (
                behind
                and number == len(groups) - 1
                and {_sign(clause, c) for c in (*chosen, *behind)} - {0} == {1, -1}
            ):
                continue
        # Of both kinds of statement, a rating is more specific than an attitude.
        chosen = [c for c in chosen if words[c].startswith("mark")] or chosen
        signs = {_sign(clause, c) for c in chosen}
        if len(signs) != 1 or signs == {0}:
            continue
        sign = signs.pop()
        marked = any(words[c].startswith("mark") for c in chosen)
        excepted = "exceptx" in words[max(0, group[0] - 2) : group[0]]
        # `except dramas, which get five stars`: the mark is theirs.
        if excepted and "which" in words[group[-1] : max(group[-1], chosen[0])]:
            excepted = False
        if excepted:
            yield _REST, sign, marked
        for place in group:
            for genre in clause.named[place]:
                yield genre, -sign if excepted else sign, marked


def _groups(words: Sequence[str], places: Sequence[int]) -> list[list[int]]:
    """Places of genres that are listed together, or stand side by side."""
    groups = [[places[0]]]
    for place in places[1:]:
        between = words[groups[-1][-1] + 1 : place]
        if all(w in _JOINS for w in between):
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


_JOINS = frozenset(
    _words(
        "and or nor , films film movies movie books novels stories games good the a an anything "
        "both flicks genre genres titles content dramas"
    )
)
_NEGATOR = re.compile(rf"^(?:{_NOT})$")


def _sign(clause: _Clause, cue: int) -> int:
    """Sign of a cue after negation."""
    sign = _SIGNS[clause.words[cue]]
    start = max(0, cue - 5)
    for n in range(cue - 1, start - 1, -1):
        word = clause.words[n]
        named = n in clause.named and clause.words[cue].startswith("cue")
        if named or word in _SIGNS or word in (",", ":", "and"):
            break
        if _NEGATOR.match(word) or word == "not":
            return -1 if sign > 0 else 0
    return sign


# --- leniency and manner -------------------------------------------------------------

_GENEROUS = re.compile(
    r"\b(?:generous(?:ly)?|lenient(?:ly)?|easy to please|easily (?:pleased|impressed|satisfied)|"
    r"forgiving|soft(?:ie| (?:critic|touch|grader))|kind (?:critic|reviewer|rater)|"
    r"leniency:? high|praises (?:almost )?everything|not take much to please)\b"
)
_HARSH = re.compile(
    r"\b(?:harsh(?:ly)?|strict(?:ly)?|picky|demanding|(?:hard|difficult|tough) to (?:please|"
    r"impress)|"
    r"tough (?:critic|crowd|grader|audience)|(?:very|highly|sharply|overly) critical|"
    r"rarely (?:impressed|satisfied|pleased)|high standards|fussy|stingy|nitpick\w*|exacting|"
    r"merciless(?:ly)?|hypercritical|unforgiving|choosy|stern judge|severe (?:critic|judge|rating)|"
    r"takes? a lot to (?:impress|please)|leniency:? low|something to complain about)\b"
)
#: Generosity and strictness of other things than ratings.
_ELSEWHERE = re.compile(
    r"\b(?:parents?|father|mother|boss|diet|schedules?|job|career|role|position|shifts|hours|"
    r"employer|regime|charity|teacher|school|"
    r"polic\w+|immigration|border|"
    r"laws?|regulations?|economic|education\w*)\b"
)
_WIDE = re.compile(
    r"\b(?:(?:whole|full|entire|complete) (?:scale|range)|scale use:? (?:full|wide)|"
    r"every number|all over the place|never in between|little in between|nothing in between|"
    r"all or nothing)\b"
)
_NARROW = re.compile(
    r"\b(?:(?:middle|midpoint|center|centre) of the scale|scale use:? narrow|"
    r"(?:avoids?|uses?|using) (?:the )?extremes?(?: ratings)?|neither good nor bad|"
    r"around the midpoint|close to the middle)\b"
)
_ALL_OF = re.compile(
    rf"\b(?:everything|anything|(?:no|does not) matter (?:what|which)(?: (?:it is|{_VIEWED}))?|"
    rf"whatever(?: the (?:genre|kind|{_VIEWED})| {_VIEWED})?|every last one of them|"
    rf"the whole lot of them|(?:all|every|each) (?:of the )?(?:single )?"
    rf"{_VIEWED}|all of them|them all|exclusively|there is no {_VIEWED} (?:i|she|he|"
    rf"they) would not)\b(?! but)"
)
#: All of what is rated, not of something else.
_ALL_VIEWED = re.compile(r"\b(?:every|each|all|any) (?:of the )?(?:film|movie|book|novel|game)s?\b")
_MOST_OF = re.compile(
    r"\b(?:most|average|mean|almost everything|nearly everything|ever|never|hardly|rarely|seldom)\b"
)


def _tone(sentence: str, clauses: Sequence[_Clause]) -> tuple[set[str], set[str]]:
    """Leniency and manner of a sentence that are not about a genre."""
    tones: set[str] = set()
    manners: set[str] = set()
    if not _ELSEWHERE.search(sentence):
        for pattern, value, other in (
            (_GENEROUS, "generous", "harsh"),
            (_HARSH, "harsh", "generous"),
        ):
            for match in pattern.finditer(sentence):
                if sentence.startswith("with ") and "to please" in match[0]:
                    continue  # hard to please with some genre
                negated = re.search(
                    r"(?:\b(?:not|never|hardly|far from|no|anything but|without being)\b)"
                    r"(?: \w+){0,2} $",
                    sentence[: match.start()],
                )
                tones.add(other if negated else value)
    if _WIDE.search(sentence):
        manners.add("wide")
    if _NARROW.search(sentence):
        manners.add("narrow")
    words = [w for c in clauses for w in c.words]
    named = {g for c in clauses for genres in c.named.values() for g in genres}
    if (
        not named - {_ALL, _KIND}
        and not _ELSEWHERE.search(sentence)
        and not (_PRONOUN.search(sentence) or re.match(r"they\b", sentence))
    ):
        rated = _OF_RATINGS.search(sentence) or named & {_ALL, _KIND}
        marks = [(c, n) for c in clauses for n in c.cues if c.words[n].startswith("mark")]
        signs = {_sign(c, n) for c, n in marks if rated}
        if signs == {0} and "markzero" in words and (_ALL in named or _MOST_OF.search(sentence)):
            manners.add("narrow")
        elif signs == {1} and re.search(r"\b(?:once|reserve[sd]?|(?<!the )only|for) ", sentence):
            tones.add("harsh")  # `five stars is for masterpieces`
        elif _KIND in named and not _MOST_OF.search(sentence):
            pass  # films of an unnamed kind
        elif signs in ({1}, {-1}) and "unreal" not in words:
            tones.add("generous" if signs == {1} else "harsh")
    return tones, manners


#: Words of sentences whose numbers are ratings; a share of an income is not one.
_OF_RATINGS = re.compile(
    rf"\b(?:{_RATE}[sd]?|ratings?|scor\w+|grad(?:es?|ing)|marks|stars?|points|reviews?\w*|critic\w*|"
    r"masterpieces?|opinions?|verdicts?)\b"
)
#: Without one of these, or a genre, a sentence states nothing.
_RELEVANT = re.compile(
    r"mark|rate|rating|scor|grad|scale|range|star|points|generous|lenient|lenien|harsh|strict|"
    r"picky|"
    r"critic|demanding|please|impress|satisf|forgiv|standards|fussy|sting|nitpick|exact|mercil|"
    r"choosy|"
    r"judge|praise|complain|extreme|every (?:film|movie|book|novel|game)|"
    r"soft|kind|tough|lot to|every number|in between|all or|all over"
)

# --- names of genres -----------------------------------------------------------------

#: Words that name a genre only beside a word for the thing itself, or in a list of genres.
_AMBIGUOUS = frozenset(
    _words(
        "family children's kids' war history music crime casual sports sport racing art arts "
        "children kids "
        "cooking business health religion science travel nature design reference home law "
        "computers technology medical education fiction short biography"
    )
)
_THINGS = frozenset(
    _words(
        "film films movie movies picture pictures cinema book books novel novels story stories "
        "reads tale tales game games title titles show shows series flick flicks genre genres "
        "literature content dramas comedies"
    )
)
#: Words for people that are genres only right before a word for the thing.
_PEOPLE = frozenset(("children", "children's", "kids", "kids'", "family"))
#: Other names of genres (lower case).
_OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "sci-fi": ("science fiction", "sci fi", "scifi", "sf", "space opera"),
    "science fiction": ("sci-fi", "sci fi", "scifi", "sf", "space opera"),
    "romance": ("romantic", "love story", "love stories", "rom-com", "rom-coms", "romcom",
                "romcoms"),
    "comedy": ("comedies", "comedic", "rom-com", "rom-coms", "romcom", "romcoms"),
    "horror": ("scary movie", "scary movies", "scary films", "slasher", "slashers"),
    "thriller": ("suspense",),
    "documentary": ("documentaries", "docs"),
    "animation": ("animated", "cartoon", "cartoons", "anime"),
    "children": ("children's", "children's films", "kids' movies", "kids films", "kids' films"),
    "children's books": ("children's",),
    "fantasy": ("fantasies",),
    "mystery": ("mysteries", "whodunit", "whodunits"),
    "rpg": ("role-playing", "role playing", "rpgs"),
    "film-noir": ("film noir", "noir", "noirs"),
    "biography": ("biographies", "memoir", "memoirs"),
    "history": ("historical",),
    "massively multiplayer": ("mmo", "mmos", "mmorpg", "mmorpgs"),
    "crime": ("gangster",),
    "war": ("wartime",),
    "sports": ("sport",),
    "simulation": ("simulator", "simulators", "sims"),
    "strategy": ("strategies",),
}  # fmt: skip


class _Lexicon:
    """Names of genres, found in text and replaced by tokens."""

    def __init__(self, genres: tuple[str, ...]) -> None:
        self._named: dict[str, tuple[str, ...]] = {}
        for genre in genres:
            for name in _names_of(genre):
                self._named[name] = (*self._named.get(name, ()), genre)
        names = sorted(self._named, key=len, reverse=True)
        joined = "|".join(re.escape(n) for n in names) or r"(?!)"
        self._pattern = re.compile(rf"(?<![\w-])(?:{joined})(?![\w-])(?!')")
        self._tokens = {f"\0g{n}\0": self._named[name] for n, name in enumerate(names)}
        self._token = {name: f"\0g{n}\0" for n, name in enumerate(names)}

    def named_in(self, text: str) -> bool:
        """Whether the text holds the name of a genre."""
        return self._pattern.search(text) is not None

    def marked(self, text: str) -> str:
        """The text with the names of genres as tokens."""
        matches = list(self._pattern.finditer(text))
        sure = [m for m in matches if m[0] not in _AMBIGUOUS]
        out, at = [], 0
        for match in matches:
            if match[0] in _AMBIGUOUS and not self._about_viewing(text, match, sure):
                continue
            out += [text[at : match.start()], self._token[match[0]]]
            at = match.end()
        return "".join([*out, text[at:]])

    def genres_of(self, token: str) -> tuple[str, ...]:
        """Genres of a token; none for other words."""
        return self._tokens.get(token, ())

    @staticmethod
    def _about_viewing(text: str, match: re.Match[str], sure: Sequence[re.Match[str]]) -> bool:
        """Whether an ambiguous word names a genre: beside a thing, or in a list with another."""
        after = re.findall(r"[\w'-]+", text[match.end() : match.end() + 60])
        if after and after[0] in _THINGS:
            return True
        if match[0] in _PEOPLE:
            return False
        if re.match(r" ?(?::|mark)", text[match.end() :]):
            return True
        before = text[: match.start()]
        listed = re.search(r"(?:^|[,:]|\bcue\w{3}|\bno|\band|\bor) *$", before)
        alone = re.match(r" *(?:$|[,:;]|and\b|or\b)", text[match.end() :])
        if listed and alone and re.search(r":|\bcue\w{3}|\bno\b", before):
            return True
        beside = text[max(0, match.start() - 18) : match.end() + 18]
        return any(m[0] in beside for m in sure) and bool(
            re.search(r",|\b(?:and|or|no|over|than|to)\b|:", beside)
        )


@lru_cache(maxsize=64)
def _lexicon(genres: tuple[str, ...]) -> _Lexicon:
    return _Lexicon(genres)


def _names_of(genre: str) -> set[str]:
    if genre in taste_names():
        return set(taste_names()[genre])
    name = genre.casefold().replace("\u2019", "'")
    # A compound is known by each of its parts: `Mystery & Thriller`, `Science Fiction, Fantasy`.
    parts = {p.strip() for p in re.split(r"\s*(?:&|,|/|\band\b)\s*", name) if p.strip()}
    names: set[str] = set()
    for part in {name, *parts}:
        names |= {part, *_OTHER_NAMES.get(part, ())}
        if part[-1] == "y" and part[-2:-1] not in "aeiou":
            names.add(part[:-1] + "ies")
        elif part[-1] != "s" and part not in ("sci-fi", "horror", "war", "action", "animation"):
            names.add(part + "s")
    return names
