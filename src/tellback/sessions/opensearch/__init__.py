"""`OpenSearchAdapter`: sessions in OpenSearch, or in Elasticsearch 7."""

from __future__ import annotations

from tellback.errors import MissingExtraError

try:
    from tellback.sessions.opensearch.adapter import OpenSearchAdapter
except ImportError as error:  # without aiohttp the driver has no asynchronous client
    raise MissingExtraError("opensearch-py", "opensearch", "The OpenSearch adapter") from error

__all__ = ["OpenSearchAdapter"]
