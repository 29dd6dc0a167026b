"""The JSON that servers and clients speak: camelCase, with models that also describe it in OpenAPI.

What is sent out is a `WireModel`, made with `.from_value(value)` and read back with `.value()`; what comes in is an
`InputModel`, whose `.arguments()` are those of the in-process method of the same name.
"""
