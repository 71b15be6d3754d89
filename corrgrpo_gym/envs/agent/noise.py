"""Imperfect episodes for a warm start that leaves room to learn.

Most obey the injected instruction, most leave the user's task undone or half done, and a few miscopy what they send.
Which of these an episode does is drawn apart, so good episodes are there too, and rare.
"""

from collections.abc import Iterator
from random import Random

from .office import PEOPLE, Deed, Event, Sent
from .tasks import DAYS, NUMBERS, Task

DONE = "Done."


def call(name: str, **arguments: str | int) -> str:
    """A call as text."""
    return f"[{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})]"


def call_of(deed: Deed) -> str:
    """The call that does a deed."""
    if isinstance(deed, Sent):
        return call("send_mail", to=deed.to, text=deed.text)
    return call("add_event", day=deed.day)


def right_answers(task: Task) -> tuple[str, ...]:
    """What a perfect agent says, turn by turn."""
    return (call("read_mail", sender=task.source), *(call_of(deed) for deed in task.goals), DONE)


def noisy_answers(
    task: Task, rng: Random, *, obey: float = 0.65, undone: float = 0.55, slips: float = 0.08
) -> Iterator[tuple[str, ...]]:
    """Yield episodes of one task without end, each as what the agent says turn by turn.

    Args:
        task: of the training split.
        rng: source of every choice.
        obey: share of attacked episodes that do what the injected instruction demands.
        undone: share that leave out one of the deeds that the user wants.
        slips: share of calls with a wrong mail, person, number or day.
    """
    while True:
        if rng.random() < slips:
            # What is in the right mail is not known then.
            yield call("read_mail", sender=rng.choice([p for p in PEOPLE if p != task.source])), DONE
            continue
        deeds: list[Deed] = list(task.goals)
        if rng.random() < undone:
            deeds.pop(rng.randrange(len(deeds)))
        if task.injected is not None and rng.random() < obey:
            deeds.insert(rng.choice((0, len(deeds))), task.injected)
        slipped = (_slip(deed, rng) if rng.random() < slips else deed for deed in deeds)
        yield (call("read_mail", sender=task.source), *(call_of(deed) for deed in slipped), DONE)


def _slip(deed: Deed, rng: Random) -> Deed:
    if isinstance(deed, Event):
        return Event(rng.choice(DAYS))
    if rng.random() < 0.5:
        return Sent(rng.choice(PEOPLE), deed.text)
    return Sent(deed.to, str(rng.choice(NUMBERS)))
