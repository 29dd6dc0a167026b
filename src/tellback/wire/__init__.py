"""The JSON that server and client exchange: camelCase, with models that also describe it in OpenAPI.

Responses are `WireModel`s, created with `.from_value(value)` and decoded with `.value()`. Request bodies are
`InputModel`s; their `.arguments()` are the arguments of the in-process method with the same name.
"""
