"""Episodes by script, and the package's own ways of doing things to compare with."""

from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import yaml

from corrgrpo_gym.envs.agentdojo import upstream
from corrgrpo_gym.envs.agentdojo.dialect import written
from corrgrpo_gym.envs.agentdojo.suites import suites

SHARED = Path(__file__).parents[4] / "shared/data/agentdojo"


def call(name, **arguments):
    return written([(name, arguments)])


def play(env, case, *answers):
    """The last step of an episode; the answers must end it, no sooner and no later."""
    env.reset(options={"task": env.number_of(case)})
    for number, answer in enumerate(answers, 1):
        messages, reward, terminated, truncated, info = env.step(answer)
        assert (terminated or truncated) == (number == len(answers)) and bool(messages) != (terminated or truncated)
    return dict(zip(env.reward_names, reward.tolist(), strict=True)), info, (terminated, truncated)


def scripted(env, number, native=False):
    """The episode of `reference_answers`."""
    case = env.task_id(number)
    answers = env.reference_messages(number) if native else env.reference_answers(number)[0]
    return play(env, case, *answers)


def tally(env, numbers):
    """Sums over episodes by script, clean ones apart."""
    sums = Counter()
    for number in numbers:
        rewards, info, ends = scripted(env, number)
        assert ends == (True, False) and rewards["format"] == 1.0 and not info["faults"]
        if info["attack"] is None:
            sums["clean"] += rewards["utility"]
        else:
            sums["cases"] += 1
            sums["utility"] += rewards["utility"]
            sums["attack"] += info["attack"]
            sums["exposed"] += info["exposed"]
    return sums


@contextmanager
def quoting():
    """Let yaml.dump write texts as the package wants it; its loading of suites depends on that."""
    before = yaml.Dumper.yaml_representers[str]
    yaml.Dumper.add_representer(str, upstream.module("yaml_loader").quoted_presenter)
    try:
        yield
    finally:
        yaml.Dumper.add_representer(str, before)


def official_environment(suite, texts):
    """What the package builds, from its YAML file, with texts injected."""
    official = suites()[suite].official
    return type(official).load_and_inject_default_environment(official, texts)
