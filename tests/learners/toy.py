"""A toy environment that a small policy learns in seconds: answer with a warm colour, alone, and politely."""

from random import Random

from corrgrpo_gym.envs import Reward, SingleTurnEnv

WARM = ("red", "orange", "brown")
COLOURS = (*WARM, "blue", "green", "black", "white", "grey")
NAMES = ("correct", "brief", "polite")
HOOKS: list = []  # called with each answer when it is scored, for tests that watch or stop a run


def correct(answer):
    for hook in list(HOOKS):
        hook(answer)
    return float(answer.split()[:1] != [] and answer.split()[0] in WARM)


def brief(answer):
    return float(len(answer.split()) <= 2)


def polite(answer):
    return float("please" in answer)


def answers(name):
    """What a policy says at first: any colour, sometimes two, sometimes politely."""
    rng = Random(name)
    for _ in range(8):
        said = " and ".join(rng.sample(COLOURS, rng.choice((1, 1, 2))))
        yield said + rng.choice(("", "", " please"))


def rows(split):
    things = ("house", "car", "door", "bird", "ship", "book") if split == "train" else ("tree", "cup", "wall")
    for verb in ("paint", "sell", "find", "describe"):
        for thing in things:
            name = f"{verb}-{thing}"
            yield {"task_id": name, "prompt": f"{verb} the {thing}", "answers": list(answers(name))}


def make(split="train"):
    rewards = [correct, Reward(brief, weight=0.5), Reward(polite, weight=0.25)]
    return SingleTurnEnv(
        lambda name: list(rows(name)), rewards, splits=("train", "test"), reference="answers", split=split
    )


def short(answer):
    return 1 / (1 + len(answer))


def letters(answer):
    return min(1.0, sum(c.isalpha() for c in answer) / 8)


def loose(split="train"):
    """Rewards that differ between any two random answers, for models that nobody has trained."""
    return SingleTurnEnv(lambda name: list(rows(name)), [short, letters], splits=("train", "test"), split=split)
