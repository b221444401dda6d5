"""Invented people and places.

Names are combinations, so that any number of different ones is at hand; a combination that
happens to be a real person's name is chance.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.sample_world._dice import Dice

__all__ = ["NameBook", "Person", "town_name"]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_FEMALE = _words(
    "Ada Agnes Alma Amira Anneke Antonia Aoife Astrid Beatriz Bronwen Camille Carmen Chiara Cleo "
    "Dagny Daria Delphine Dolores Edith Eilidh Elif Elsa Esther Fatima Freya Gemma Greta Hana "
    "Harriet Helga Ida Imani Ines Ingrid Iris Isolde Jasmin Josefa Judith Kaisa Katya Keiko Lena "
    "Leonor Lidia Linnea Lucia Mabel Magda Maren Marisol Matilda Mei Mina Miriam Nadia Naomi "
    "Nell Nora Odile Olga Ottilie Paloma Petra Pilar Priya Quinn Ramona Renée Rhea Rosalind Ruth "
    "Salome Saoirse Selma Signe Sofía Sunniva Sylvie Tamsin Tara Thelma Ursula Valeria Vera "
    "Viola Wanda Willa Xenia Yara Yvonne Zadie Zora Zuzana Chloé Noémie Anaïs Zoë Åsa"
)
_MALE = _words(
    "Abel Adrian Alasdair Ambrose Anders Anton Arlo Bastian Benedek Bruno Caleb Casimir Cedric "
    "Ciaran Cormac Cyril Damian Dario Desmond Dmitri Eamon Edgar Elias Emeka Emil Enzo Ezra "
    "Felix Fergus Florian Gaspard Gideon Giles Gustav Hamid Hector Henrik Hiro Hugo Ignacio Ivo "
    "Jarvis Jasper Joaquín Jonas Kaspar Kenji Kofi Lars Leander Leopold Linus Lorenzo Luca Magnus "
    "Marcel Matteo Milan Milo Moritz Nico Nils Noah Octavio Olaf Omar Oskar Otto Pascal Percy "
    "Quentin Rafael Ravi Reuben Rhys Roman Rufus Samir Sandor Silas Sven Tadeo Tariq Theo Tobias "
    "Ulrich Umberto Vasco Viktor Walter Wendell Xavier Yusuf Zeno André Jérôme Sébastien Björn René"
)
_LAST_FIRST = _words(
    "Abel Ash Bar Beck Berg Birn Black Bram Brand Brook Carl Cass Clay Cold Corn Dahl Dal Dorn "
    "Dray East Eld Elm Fair Farn Fen Field Finn Frost Gold Gran Green Hal Hart Hazel Hed Holm "
    "Horn Kel Kirk Lang Lind Loch Lund Mar Mel Mill Moor Nord Oak Orm Pen Quill Rand Rav Red "
    "Rod Rose Sand Sel Skov Stan Stein Sund Tarn Thorn Ul Vald Var Wald Wen West Whit Wick Wyn"
)
_LAST_SECOND = _words(
    "aby acre ari aro berg borough bridge bury by combe croft dale den don ell er ett ev field "
    "ford gate grave ham haven holm ias in ing ison kov land ley lind low man mark mere mond "
    "more ner ness ova quist rath ridge roth sen shaw son stad stead ster stone strand thorpe "
    "ton vik wall ward well wick win wood worth yard"
)
_TOWN_FIRST = _words(
    "Al Amber Arden Ash Bell Birch Bran Brim Cal Cedar Cinder Clear Corr Crane Dun Eden Elder "
    "Fallow Fern Gal Gilder Grim Hale Harrow Haver Hollin Iron Juniper Kest Lark Loam Lorn "
    "Mallow Marl Merrin Mist Nettle Orrin Otter Pell Quarrel Raven Rill Rook Salt Sorrel "
    "Stark Tallow Tamar Teasel Umber Vale Vesper Wether Whistle Willow Winter Wren Yarrow"
)
_TOWN_SECOND = _words(
    "bourne bridge brook burn by cliff combe cross dale den fell field ford gate ham haven hurst "
    "ley marsh mere mond moor mouth ness pool port reach ridge rock shore stead ton vale view "
    "wall water well wick wold wood worth"
)
#: Coprime to the number of combinations, so that stepping by it visits each once.
_STRIDE = 1_000_003


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody in the cast, the crew or the story."""

    id: int
    first: str
    last: str
    female: bool

    @property
    def name(self) -> str:
        """First and last name."""
        return f"{self.first} {self.last}"


class NameBook:
    """A numbering of invented people: number ``n`` is always the same, no two share a name.

    Parameters
    ----------
    seed
        The generator's seed.
    stream
        People of different streams may share names (actors and characters).

    Examples
    --------
    >>> book = NameBook(1, "cast")
    >>> len({book.person(n).name for n in range(5000)})
    5000
    """

    def __init__(self, seed: int, stream: str) -> None:
        self._offset = Dice(seed, "names", stream).below(1 << 30)
        self._last = sorted({a + b for a in _LAST_FIRST for b in _LAST_SECOND if a[-1] != b[0]})
        self._firsts = (_FEMALE, _MALE)
        self._pairs = sum(len(f) for f in self._firsts) * len(self._last)

    def person(self, n: int) -> Person:
        """Person number ``n`` (from 0); after all pairs are used a middle initial is added."""
        round_, k = divmod(n, self._pairs)
        k = (self._offset + k * _STRIDE) % self._pairs
        first_index, last_index = divmod(k, len(self._last))
        female = first_index < len(_FEMALE)
        first = _FEMALE[first_index] if female else _MALE[first_index - len(_FEMALE)]
        middle = f" {_initials(round_)}" if round_ else ""
        return Person(n + 1, first + middle, self._last[last_index], female)


def _initials(n: int) -> str:
    """A., B., … Z., A. A., … for n from 1."""
    out = ""
    while n:
        n, rest = divmod(n - 1, 26)
        out = f"{chr(65 + rest)}. {out}".strip()
    return out


def town_name(dice: Dice) -> str:
    """An invented place name.

    >>> town_name(Dice(3, "doc")) == town_name(Dice(3, "doc"))
    True
    """
    while True:
        first, second = dice.pick(_TOWN_FIRST), dice.pick(_TOWN_SECOND)
        if first[-1] != second[0] and not (first + second).lower().endswith(first.lower()):
            break
    name = first + second
    if dice.chance(0.15):
        return f"{dice.pick(('Port', 'Saint', 'New', 'Old', 'Upper', 'Lower'))} {name}"
    return name
