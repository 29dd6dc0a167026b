"""Adapters to the vendors' own SDKs, a module or package each, on one base class.

Importing one loads no SDK; using it does. Applications import them from `tellback.chat`; no adapter imports
another.
"""
