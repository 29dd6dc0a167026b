"""The built-in providers, a module or package each, and the code they share.

A provider's module declares it as `PROVIDER`, which loads neither its model class nor its SDK. `base`, `errors`,
`media`, `retry` and `chat_completions` (OpenAI's chat API) are shared; no provider imports another. Applications import
the model classes from `tellback.chat`.
"""
