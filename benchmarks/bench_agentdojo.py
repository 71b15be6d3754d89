"""Times of resets and steps of the environment agentdojo, beside the package's own way of building an environment.

    python benchmarks/bench_agentdojo.py [--cases 40]

For each suite, over cases of the test split in turn: "package" is what upstream does at the start of an episode (read
its YAML file, with the texts injected, and copy the environment for the checker), "first" our reset of a case that
nobody has asked for, "again" of one that was built before, "step" a call of the ground truth, "last" the answer that
ends the episode, which is when the official checkers run. Milliseconds: median, and the greatest in brackets.
"""

import argparse
import time
from statistics import median

import yaml

from corrgrpo_gym import envs
from corrgrpo_gym.envs.agentdojo import upstream
from corrgrpo_gym.envs.agentdojo.cases import injections
from corrgrpo_gym.envs.agentdojo.suites import suites


def package_reset(case):
    """What upstream does."""
    official = suites()[case.suite].official
    environment = type(official).load_and_inject_default_environment(official, dict(injections(case)))
    environment.model_copy(deep=True)


def timed(do, *args, **kwargs):
    start = time.perf_counter()
    do(*args, **kwargs)
    return 1e3 * (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=40, help="of each suite")
    count = parser.parse_args().cases
    loading = timed(envs.make, "agentdojo", split="test", suite="banking")
    print(f"loading the package and its suites: {loading:.0f} ms, once per process\n")
    print(f"{'suite':<10} {'package':>16} {'first':>16} {'again':>16} {'step':>16} {'last':>16}")
    # The package needs texts to be written in quotes, and changes yaml.dump for that.
    yaml.Dumper.add_representer(str, upstream.module("yaml_loader").quoted_presenter)
    for suite in suites():
        env = envs.make("agentdojo", split="test", suite=suite)
        times = {name: [] for name in ("package", "first", "again", "step", "last")}
        numbers = range(0, len(env.tasks), max(1, len(env.tasks) // count))
        package_reset(env.tasks[0])
        for i in numbers:
            injections(env.tasks[i])
            for name in ("first", "again"):
                times[name].append(timed(env.reset, options={"task": i}))
            answers = env.reference_answers(i)[0]
            for answer in answers:
                times["last" if answer is answers[-1] else "step"].append(timed(env.step, answer))
        times["package"] = [timed(package_reset, env.tasks[i]) for i in numbers[:8]]
        cells = (f"{median(values):.1f} ({max(values):.0f})" for values in times.values())
        print(f"{suite:<10} " + " ".join(f"{cell:>16}" for cell in cells))


if __name__ == "__main__":
    main()
