"""Names of categories made comparable: as written, folded, and as words."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

#: Between the levels of a category path written as one text.
SEPARATOR = " > "

_SPACES = re.compile(r"\s+")
_POSSESSIVE = re.compile(r"(?<=\w)['\u2019]s?\b|(?<=s)['\u2019]")
_WORD = re.compile(r"[^\W_]+")
#: Words that join two names and say nothing ("Action & Toy Figures").
_JOINTS = frozenset({"and", "n"})
# Plurals that no rule below takes to their singular, or words that only look like plurals.
_IRREGULAR = {
    "buses": "bus",
    "children": "child",
    "feet": "foot",
    "halves": "half",
    "knives": "knife",
    "leaves": "leaf",
    "lens": "lens",
    "lenses": "lens",
    "loaves": "loaf",
    "men": "man",
    "mice": "mouse",
    "scarves": "scarf",
    "shelves": "shelf",
    "teeth": "tooth",
    "women": "woman",
}
_CACHED = 65_536


def repaired(name: str) -> str:
    """The name with one round of double encoding undone, where that is exact.

    >>> repaired("Food PurÃ©es"), repaired("Purées"), repaired("Ãngel")
    ('Food Purées', 'Purées', 'Ãngel')
    """
    if name.isascii():
        return name
    for encoding in ("cp1252", "latin-1"):
        try:
            return name.encode(encoding).decode("utf-8")
        except UnicodeError:
            continue
    return name


def normal(name: str) -> str:
    """The name in one case and Unicode form, with single spaces.

    >>> normal("  Video   GAMES ")
    'video games'
    """
    return _SPACES.sub(" ", unicodedata.normalize("NFKC", name)).strip().casefold()


@lru_cache(_CACHED)
def words(name: str) -> tuple[str, ...]:
    """Stems of the name's words in order: no accents, possessives, joints or punctuation.

    >>> words("Women's Shoes & Sandals"), words("Salsas and Purées"), words("CDs & Vinyl")
    (('woman', 'sho', 'sandal'), ('salsa', 'puree'), ('cd', 'vinyl'))
    >>> words("Girls' Toys"), words("A/V Cables"), words("&")
    (('girl', 'toy'), ('a', 'v', 'cable'), ())
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    tokens = _WORD.findall(_POSSESSIVE.sub("", plain.casefold()))
    return tuple(stem(word) for word in tokens if word not in _JOINTS)


def folded(name: str) -> str:
    """The stems of the name's words as one text: equal for names that mean the same.

    >>> folded("Action & Toy Figures") == folded("action and toy figure")
    True
    """
    return " ".join(words(name))


@lru_cache(_CACHED)
def stem(word: str) -> str:
    """Common stem of a word and its plural; not always a word itself.

    >>> [stem(w) for w in ("watches", "watch", "accessories", "accessory", "shoes", "shoe")]
    ['watch', 'watch', 'accessori', 'accessori', 'sho', 'sho']
    >>> [stem(w) for w in ("glasses", "glass", "dvds", "tomatoes", "tomato", "movies", "movie")]
    ['glass', 'glass', 'dvd', 'tomato', 'tomato', 'movi', 'movi']
    >>> [stem(w) for w in ("tennis", "knives", "knife", "toys", "toy", "houses", "house", "tv")]
    ['tennis', 'knife', 'knife', 'toy', 'toy', 'house', 'house', 'tv']
    """
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) < 3 or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 3:
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
        if word in _IRREGULAR:  # `womens`, as people write it
            return _IRREGULAR[word]
    if word.endswith("ie"):
        return word[:-1]
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "i"
    # `boxes` has lost its `s` here and `axe` never had one: both lose the `e`.
    if word.endswith(("che", "she", "xe", "ze", "sse", "oe")) and len(word) > 3:
        return word[:-1]
    return word
