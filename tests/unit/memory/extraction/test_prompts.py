"""The extraction prompts, built in and custom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tellback.errors import ConfigurationError
from tellback.memory.extraction.parser import EntityOutput, FactOutput
from tellback.memory.extraction.prompts import Prompts


def test_built_in_versions_are_found() -> None:
    assert Prompts().versions() == ("v1", "v2")
    assert not Prompts().extraction("v1").wants_quotes
    assert Prompts().extraction("v2").wants_quotes
    assert '"replaces"' in Prompts().reconcile().text


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_prompt_explains_every_field(version: str) -> None:
    text = Prompts().extraction(version).text
    fields = {*FactOutput.model_fields, *EntityOutput.model_fields} - ({"quote"} if version == "v1" else set())
    assert [field for field in fields if f"`{field}`" not in text] == []


def test_a_file_in_the_folder_is_a_version(tmp_path: Path) -> None:
    (tmp_path / "extraction-2026.1-beta.txt").write_text("Note everything, with its `quote`.\n", "utf-8")
    (tmp_path / "extraction-v1.txt").write_text("Mine.", "utf-8")
    (tmp_path / "notes.txt").write_text("no prompt", "utf-8")
    prompts = Prompts(tmp_path)
    assert prompts.versions() == ("2026.1-beta", "v1", "v2")
    assert prompts.extraction("2026.1-beta").text == "Note everything, with its `quote`."
    assert prompts.extraction("2026.1-beta").wants_quotes
    assert prompts.extraction("v1").text == "Mine."
    assert prompts.extraction("v2").text == Prompts().extraction("v2").text
    assert prompts.reconcile() == Prompts().reconcile()


def test_the_error_for_an_unknown_version_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"version 'v9'.*Known versions: v1, v2\."):
        Prompts().extraction("v9")


@pytest.mark.parametrize("version", ["../secret", "a/b", "", "v1\n", "v1\x00", "/etc/passwd", None, 1])
def test_a_version_cannot_reach_another_file(version: str, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret", "utf-8")
    (tmp_path / "extraction-").mkdir()
    with pytest.raises(ConfigurationError, match="of the extraction prompt"):
        Prompts(tmp_path).extraction(version)


def test_a_missing_folder_raises_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a folder"):
        Prompts(tmp_path / "missing")


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe\xff"])
def test_an_unreadable_or_empty_prompt_raises_configuration_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "extraction-v3.txt").write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"extraction-v3\.txt"):
        Prompts(tmp_path).extraction("v3")
