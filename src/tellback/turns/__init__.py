"""The engine of a turn and the functions that start one.

`engine` runs a turn, `request` describes it, `claims` locks the conversation, `recall` looks up memories, `writer`
stores the messages, `attachments` are files of a message; `chat` and `chat_turn` are entry points. Agents, specs and
the user handle import this package, applications `tellback.turn`."""
