"""The engine of a turn and the functions that start one.

`engine` runs a turn, `request` describes it and what it recalls, `claims` locks the conversation, `writer`
stores the messages, `attachments` are files of a message; `chat` is `user.chat`. Agents, specs, the user handle and
`tellback.turn` (`run_chat_turn`) import this package."""
