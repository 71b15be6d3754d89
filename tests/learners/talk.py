"""Environments of several turns, and tokenizers with the chat templates of different families."""

from pathlib import Path

from corrgrpo_gym.envs import MultiRewardEnv
from corrgrpo_gym.envs.base import Turn
from corrgrpo_gym.learners import embedded_policy

from . import tiny

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
# In the shape of: Qwen2.5 (tool results grouped in a user turn), Llama 3 (headers, trimmed content), SmolLM2 (a system
# message of its own, tools ignored), and the embedded policy's own.
TEMPLATES = ("chatml_tools", "headers", "chatml_default", "embedded")


def tokenizer(template):
    """One token per character, with a template's special tokens; `<|im_end|>` (or `<|end|>`) has tiny's end id."""
    import json

    from transformers import PreTrainedTokenizerFast

    made = tiny.tokenizer()
    end = embedded_policy.END if template == "embedded" else "<|im_end|>"
    state = json.loads(made.backend_tokenizer.to_str())
    vocabulary = state["model"]["vocab"]
    del vocabulary["<end>"]
    vocabulary[end] = tiny.END
    extra = ["<|im_start|>", "<|begin|>", "<|head|>", "<|body|>", *(f"<|{r}|>" for r in embedded_policy.ROLES)]
    letters = [c for c in '{}[]":,_/<>ABCDEFGHIJKLMNOPQRSTUVWXYZ-' if c not in vocabulary]
    for token in (*extra, *letters):
        vocabulary[token] = len(vocabulary)
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    state["added_tokens"] = [{"id": vocabulary[t], "content": t, **special} for t in ("<pad>", end, *extra)]
    from tokenizers import Tokenizer

    inner = Tokenizer.from_str(json.dumps(state))
    made = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=end, pad_token="<pad>")
    text = embedded_policy.TEMPLATE if template == "embedded" else (
        Path(__file__).parent / "templates" / f"{template}.jinja"
    ).read_text()  # fmt: skip
    made.chat_template = text
    return made


class Talk(MultiRewardEnv):
    """Three answers and two replies between them: two tool results, then a question. Rewards come every turn."""

    reward_names = ("spoke", "ended")
    reward_ranges = {"spoke": (0.0, 99.0)}
    length = 3

    def __init__(self, tasks=("look here", "and 12+30 there"), splits=("train",)):
        self.splits = splits
        super().__init__(list(tasks), split=splits[0])

    def prompt(self, task):
        return [{"role": "user", "content": self.tasks[task]}]

    def tools(self, task):
        return TOOLS

    def begin(self, task):
        self.heard = []

    def turn(self, reply):
        self.heard.append(reply["content"])
        number = len(self.heard)
        spoke = len(reply["content"]) / 8
        if number == self.length:
            return Turn({"spoke": spoke, "ended": 1.0}, terminated=True, info={"heard": list(self.heard)})
        results = [
            {"role": "tool", "content": f"saw {number} things", "name": "look"},
            {"role": "tool", "content": "no more", "name": "look"},
        ]
        return Turn([spoke, 0.0], results if number == 1 else [{"role": "user", "content": "what else?"}])

    def cut(self):
        return Turn({"spoke": 0.0, "ended": 0.25}, info={"cut": True})


def make(split="train"):
    env = Talk(splits=("train", "test"))
    env.split = split
    return env
