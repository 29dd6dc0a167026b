"""Use OpenAI's client with Tellback: only its `base_url` changes.

    python examples/openai_client.py

This program runs a Tellback server on a free port, with OpenAI's chat completions API under /v1. Maya's messages of one
conversation are remembered in the next, without any code in the client. This works with every client that has a
`base_url`. With a provider's key in the environment that provider answers; without one, the memory is quoted.
"""

from openai import AsyncOpenAI

from example_helpers import run
from server_client import run_server
from tellback import Tellback

STATEMENT, QUESTION = "I moved to Lisbon in March, and I am vegetarian now.", "Am I vegetarian?"


async def main() -> None:
    """Run the server and the OpenAI client."""
    async with Tellback(":memory:", model="auto") as tb, run_server(tb) as url:
        key = await tb.keys.create("app", tenant_id="acme")
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key.secret) as client:
            response = await client.chat.completions.with_raw_response.create(
                model="tellback", messages=[{"role": "user", "content": STATEMENT}], user="maya"
            )
            reply = response.parse()
            print(f"> {STATEMENT}\n{reply.choices[0].message.content}")

            # Conversations close after an hour without a message. Close it now, as if an hour had passed.
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
