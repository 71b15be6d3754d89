"""LeetCode: seven rewards for one program, on the published data or an embedded problem family."""


def __getattr__(name: str) -> object:
    if name == "LeetCodeEnv":
        from .env import LeetCodeEnv

        return LeetCodeEnv
    raise AttributeError(name)
