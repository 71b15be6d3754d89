"""A toy environment that a small policy learns in seconds: repeat a word, once, politely if it costs nothing."""

from corrgrpo_gym.envs import Reward, SingleTurnEnv

WORDS = ("red", "blue", "green", "black", "white", "brown", "pink", "grey")
NAMES = ("correct", "brief", "polite")
STEPS: list[str] = []  # answers that were scored, for tests that watch
HOOKS: list = []  # called with each answer before it is scored


def correct(answer, word):
    for hook in HOOKS:
        hook(answer)
    STEPS.append(answer)
    return float(answer.split()[:1] == [word])


def brief(answer):
    return 1.0 if len(answer.split()) == 1 else 0.0


def polite(answer):
    return float("please" in answer)


def _row(asked, word):
    other = WORDS[(WORDS.index(word) + 1) % len(WORDS)]
    return {
        "task_id": f"{asked}-{word}",
        "prompt": f"{asked} {word}",
        "word": word,
        "answers": [word, f"{word} please", f"{other}", f"{word} and {other} please", f"{other} please"],
    }


def rows(split):
    asked = {"train": ("say", "name", "tell"), "test": ("repeat",)}[split]
    return [_row(a, word) for a in asked for word in WORDS]


def make(split="train"):
    return SingleTurnEnv(
        rows, [correct, Reward(brief, weight=0.5), Reward(polite, weight=0.25)], reference="answers", split=split
    )
