"""Prompts of shopping dialogues (BIEL, figures 9-16; the wording is ours).

Prompts go from what stays to what changes, so that they begin alike: an agent's has role and forms
of reply, shelf, earlier visits, conversation, task; a customer's has the rules of answers and
feedback, person, conversation.
Titles, questions, answers and personas are one harmless line each, between tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.errors import ConfigError
from pipelines.llm.engines import Message
from pipelines.prompts._texts import one_line, render_template, template_digest

#: Bumped with every change of wording; the digest of the templates changes with it.
DIALOGUE_PROMPT_VERSION = "8"
_TEMPLATES = tuple(
    f"dialogue_{name}"
    for name in (
        "act",
        "agent_system",
        "agent_user",
        "answer",
        "confidence",
        "customer_system",
        "feedback",
        "past",
        "recommend",
        "shelf",
        "summary",
    )
)
#: Strategies of agents: figures 12 (base), 15, 16, 14 and 9.
DIALOGUE_STRATEGIES = ("base", "greedy", "dp", "cot", "oracle")
#: The six claims that confidences are about (section 5.1), by name.
DIALOGUE_CLAIMS: dict[str, str] = {
    "top1": "the one product of the shelf that the customer likes most",
    "top5": "one of the five products of the shelf that the customer likes most",
    **{
        f"within{points}": f"at most {points} points below the product that the customer likes most"
        for points in (5, 10, 20, 30)
    },
}
#: How the customer speaks, from the best tone to the worst.
_TONES = (
    "It is exactly right for you: you are delighted.",
    "It is nearly right for you: you are pleased, with a small reservation.",
    "It is only partly right for you: you are polite, but not convinced.",
    "It is not right for you: you are disappointed, and say so politely.",
)
Exchange = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ShelfProduct:
    """A product as an agent's prompt lists it."""

    #: Its number in the dialogue, from 1.
    number: int
    title: str
    #: US dollars, and mean stars of five; None where unknown.
    price: float | None = None
    rating: float | None = None
    #: A few words beside the title ("" for none).
    text: str = ""


def dialogue_prompt_digest() -> str:
    """SHA-256 (hex) of the templates."""
    return template_digest(*_TEMPLATES)


def shelf_block(category: str, products: Sequence[ShelfProduct]) -> str:
    """The products of a choice set, a line each."""
    rows = []
    for one in products:
        facts = []
        if one.price is not None:
            facts.append(f"${one.price:.2f}")
        if one.rating is not None:
            facts.append(f"rated {one.rating:.1f} of 5")
        if text := one_line(one.text):
            facts.append(text)
        rows.append((one.number, one_line(one.title), facts))
    return render_template("dialogue_shelf", category=one_line(category), products=rows)


def past_block(
    number: int,
    customer: str,
    category: str,
    *,
    said: Sequence[Exchange] = (),
    product: str = "",
    feedback: str = "",
    summary: str = "",
) -> str:
    """An earlier episode: its dialogue, sale and feedback, or a `summary` instead of them."""
    return render_template(
        "dialogue_past",
        number=number,
        customer=one_line(customer),
        category=one_line(category),
        said=_lines(said),
        product=one_line(product),
        feedback=one_line(feedback),
        summary=one_line(summary),
    )


def dialogue_agent_messages(
    strategy: str,
    shelf: str,
    products: int,
    *,
    customer: str = "customer 1",
    past: Sequence[str] = (),
    said: Sequence[Exchange] = (),
    person: Sequence[Exchange] = (),
    ask: bool = True,
    sell: bool = True,
    frugal: bool = False,
    turns_left: int | None = None,
    thought: str | None = None,
    begun: bool = False,
    product: int | None = None,
    claim: str | None = None,
    fault: str | None = None,
) -> tuple[Message, ...]:
    """A turn of an agent, or a question about its recommendation.

    Parameters
    ----------
    strategy
        One of `DIALOGUE_STRATEGIES`.
    shelf, past
        Results of :func:`shelf_block` and :func:`past_block`, oldest first.
    products
        Number of products of the shelf (count).
    customer
        Label of the customer.
    said
        Questions and answers of this dialogue.
    person
        Labels and values about the customer: for ``oracle`` alone.
    ask, sell
        Possible actions.
    frugal
        Tell the agent to ask no more than it needs (figure 12).
    turns_left
        Questions that may still be asked; None leaves them out.
    thought
        Its reasoning before a recommendation, whose reply is then a number; "" for a strategy
        without one. None asks for an action, or a reason before it.
    begun
        End the prompt in the beginning of a recommendation, behind which its number stands.
    product
        Number of the recommendation that confidences are asked for.
    claim
        The claim, of `DIALOGUE_CLAIMS`, that is answered with yes or no; None asks for a
        percentage of each.
    fault
        Fault of the last reply to the same prompt.
    """
    if strategy not in DIALOGUE_STRATEGIES:
        raise ConfigError(
            "no prompt for the strategy",
            where=strategy,
            hint=f"one of {', '.join(DIALOGUE_STRATEGIES)}",
        )
    if product is not None:
        task = render_template(
            "dialogue_confidence",
            product=product,
            claim=None if claim is None else DIALOGUE_CLAIMS[claim],
            claims=list(DIALOGUE_CLAIMS.items()),
        )
    elif thought is None:
        task = render_template(
            "dialogue_act",
            thought=strategy == "cot",
            ask=ask,
            sell=sell,
            products=products,
            turns_left=turns_left,
        )
    else:
        task = render_template(
            "dialogue_recommend",
            strategy=strategy,
            products=products,
            thought=one_line(thought),
            begun=begun,
        )
    user = render_template(
        "dialogue_agent_user",
        strategy=strategy,
        shelf=shelf,
        person=_lines(person),
        past=list(past),
        customer=one_line(customer),
        said=_lines(said),
        task=task,
        fault=None if fault is None else one_line(fault),
    )
    system = render_template("dialogue_agent_system", strategy=strategy, frugal=frugal)
    asked = (Message("system", system), Message("user", user))
    return (*asked, Message("assistant", "RECOMMEND: ")) if begun else asked


def dialogue_summary_messages(
    strategy: str, episode: str, *, fault: str | None = None
) -> tuple[Message, ...]:
    """Ask an agent for a summary of an episode (figure 13), given as :func:`past_block`."""
    system = render_template("dialogue_agent_system", strategy=strategy, frugal=False)
    told = None if fault is None else one_line(fault)
    return (
        Message("system", system),
        Message("user", render_template("dialogue_summary", episode=episode, fault=told)),
    )


def dialogue_answer_messages(
    person: Sequence[Exchange],
    category: str,
    question: str,
    *,
    options: Sequence[str] = (),
    said: Sequence[Exchange] = (),
    fault: str | None = None,
) -> tuple[Message, ...]:
    """A question to a customer (figure 10b): never with products or scores.

    Parameters
    ----------
    person
        Labels and values about the customer.
    category, question
        Category of the choice set, and what the agent asks.
    options
        Possible answers; without them the answer is a line of text.
    said
        Earlier questions of this dialogue and the customer's answers.
    fault
        Fault of the last reply to the same question.
    """
    task = render_template(
        "dialogue_answer",
        question=one_line(question),
        options=[one_line(option) for option in options],
        fault=None if fault is None else one_line(fault),
    )
    return _to_customer(person, category, said, task)


def dialogue_feedback_messages(
    person: Sequence[Exchange],
    category: str,
    product: str,
    regret: float,
    tone: int,
    top: Sequence[str],
    *,
    said: Sequence[Exchange] = (),
    fault: str | None = None,
) -> tuple[Message, ...]:
    """Ask a customer for feedback (figure 11), which may give away neither regret nor `top`.

    ``product`` is the title of what was sold, ``top`` those of the three best products; ``regret``
    are the points (0-100) that the sold product misses of the best one, ``tone`` is 0 (delighted)
    to 3 (disappointed). The others are those of :func:`dialogue_answer_messages`.
    """
    task = render_template(
        "dialogue_feedback",
        product=one_line(product),
        regret=f"{regret:.0f}",
        top=[one_line(title) for title in top],
        tone=_TONES[tone],
        fault=None if fault is None else one_line(fault),
    )
    return _to_customer(person, category, said, task)


def _to_customer(
    person: Sequence[Exchange], category: str, said: Sequence[Exchange], task: str
) -> tuple[Message, ...]:
    """The conversation as turns: the user is the shop assistant, the model the customer."""
    system = render_template(
        "dialogue_customer_system", facts=_lines(person), category=one_line(category)
    )
    turns = [
        turn
        for question, answer in _lines(said)
        for turn in (Message("user", question), Message("assistant", answer))
    ]
    return (Message("system", system), *turns, Message("user", task))


def _lines(pairs: Sequence[Exchange]) -> list[Exchange]:
    return [(one_line(first), one_line(second)) for first, second in pairs]
