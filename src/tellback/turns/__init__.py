"""The engine of a turn and the functions that start one.

`engine` runs a turn, `request` describes it, `claims` locks the conversation, `recall` looks up memories, `writer`
stores the messages, `attachments` are files of a message; `chat` is `user.chat`. Agents, specs, the user handle and
`tellback.turn` (`run_chat_turn`) import this package."""
