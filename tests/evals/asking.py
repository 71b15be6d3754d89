"""Asks an endpoint directly."""

import asyncio

from corrgrpo_gym.evals.models.base import ChatSampling, Request
from corrgrpo_gym.evals.models.endpoint import Endpoint

from .server import Server


def request(text="hi", case="c", sample=0, tools=(), messages=None, **sampling):
    messages = messages or [{"role": "user", "content": text}]
    return Request(case, sample, 0, messages, tools, ChatSampling(**sampling))


def ask(server, *requests, check=False, model="tiny", **options):
    """Answers to requests that are made at once; a failure stands in the place of its answer."""

    async def session():
        endpoint = Endpoint(server.url, model, **{"base": 0.005, "timeout": 10.0, **options})
        try:
            if check:
                await endpoint.check()
            answers = [endpoint.complete(r) for r in requests or (request(),)]
            out = await asyncio.gather(*answers, return_exceptions=True)
            return list(out), endpoint
        finally:
            await endpoint.close()

    return asyncio.run(session())


def answer(behave, *requests, **options):
    with Server(behave) as server:
        out, _ = ask(server, *requests, **options)
    return out[0] if len(out) == 1 else out
