"""OpenAI's own client gets a memory: only its `base_url` is another.

    python examples/openai_client.py

A Tellback server answers on a port of this machine that is free, and speaks OpenAI's chat completions under /v1. What
Maya says in one conversation is known in the next, and the program that asks does nothing for it. Whatever takes a
`base_url` can do the same. With nothing set up, what she said is quoted; with a provider's key in the environment, that
provider answers.
"""

from openai import AsyncOpenAI

from example_helpers import run
from server_client import run_server
from tellback import Tellback

STATEMENT, QUESTION = "I moved to Lisbon in March, and I am vegetarian now.", "Am I vegetarian?"


async def main() -> None:
    """A server here; a program that knows nothing of Tellback."""
    async with Tellback(":memory:", model="auto") as tb, run_server(tb) as url:
        key = await tb.keys.create("app", tenant_id="acme")
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key.secret) as client:
            response = await client.chat.completions.with_raw_response.create(
                model="tellback", messages=[{"role": "user", "content": STATEMENT}], user="maya"
            )
            reply = response.parse()
            print(f"> {STATEMENT}\n{reply.choices[0].message.content}")

            # Conversations close by themselves when nothing is said for an hour. Here, an hour has passed.
            maya = tb.user("maya", tenant_id="acme")
            await maya.conversations.close(response.headers["X-Tellback-Conversation"])
            await tb.jobs.drain(timeout=120)

            print(f"\n> {QUESTION}")
            async with client.chat.completions.stream(
                model="tellback", messages=[{"role": "user", "content": QUESTION}], user="maya"
            ) as stream:
                async for event in stream:
                    if event.type == "content.delta":
                        print(event.delta, end="", flush=True)
            print()


if __name__ == "__main__":
    run(main())
