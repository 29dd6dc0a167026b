"""Use the memory without a model: recall messages of an earlier conversation, with their sources.

    python examples/memory.py [FILE]

The data is stored in FILE (default: tellback.db).
"""

import asyncio
import sys

from tellback import Tellback, TellbackError

TURNS = (
    ("I moved to Lisbon in March, and I'm vegetarian now.", "How do you like the city?"),
    ("Love it. My sister Ana visits in two weeks, she is allergic to peanuts.", "I will keep that in mind."),
)
QUESTIONS = ("Where does Maya live?", "What must Ana not eat?", "Who is coming to visit?")


async def main(path: str) -> None:
    """Store a conversation, remember it, and recall it in another one."""
    async with Tellback(path) as tb:
        maya = tb.user("maya")
        space = await maya.memory.create_space("talks", once=True)
        conversation = await maya.conversations.create(
            "chat", metadata={"speakers": {"user": "Maya", "assistant": "Wanda"}}
        )
        for text, answer in TURNS:
            await maya.conversations.append_turn(conversation.id, text, {"content": answer})
        await maya.conversations.close(conversation.id)
        atoms = await maya.memory.remember_conversation(space.id, conversation.id)
        print(f"[{len(atoms)} turns remembered in {path}]")

        for question in QUESTIONS:
            hit = (await maya.memory.recall_by_topic(space.id, question, limit=1)).hits[0]
            source = await maya.conversations.message(hit.atom.source_message_ids[0])
            assert source is not None
            print(f"> {question}\n{hit.atom.text}\n[{hit.score:.2f}, sent {source.created_at:%Y-%m-%d}, {source.id}]")

        tonight = await maya.conversations.create("dinner")
        await maya.conversations.append_user_message(tonight.id, "What could I cook when Ana is here?")
        context = await maya.working_context.build(tonight.id, memory_space_id=space.id, recall_limit=3)
        print(f"\n[context for a model, {context.tokens_estimated} tokens:]\n{context.context_block}")


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "tellback.db"))
    except TellbackError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit("\nstopped")
