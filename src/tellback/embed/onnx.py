"""`OnnxEmbedder`: sentence models in ONNX format, run on this machine by `onnxruntime`."""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tellback.embed.vectors import SURROGATES, Vectors, normalize_rows, to_unit_vectors, validate_texts
from tellback.errors import ConfigurationError, EmbeddingError, MissingExtraError

if TYPE_CHECKING:
    from tokenizers import Encoding

DEFAULT_MODEL = "all-MiniLM-L6-v2"
MODEL_DIMENSIONS = {
    "all-MiniLM-L6-v2": 384,
    "all-MiniLM-L12-v2": 384,
    "all-mpnet-base-v2": 768,
    "paraphrase-multilingual-MiniLM-L12-v2": 384,
}
"""The models known by name: those of `sentence-transformers` whose vector is the mean over the tokens."""

_MODEL_FILES = ("model.onnx", "onnx/model.onnx")
_MAX_TOKENS = 256
"""Tokens at once, which is what MiniLM is meant for. A longer text is embedded in pieces."""
_MAX_PIECES = 16
_BATCH_TOKENS = 8192
_BATCH_TEXTS = 64


class OnnxEmbedder:
    """A sentence model run on this machine: better at paraphrases than the static embedder, and far slower.

    `path` is a folder with `model.onnx` and `tokenizer.json`. Without it, a model known by name is taken from the
    Hugging Face cache, or fetched into it when first used. A text's vector is the mean over its tokens, of up to 4096.
    `threads` is how many cores may be used. Needs `tellback[onnx]`.

    >>> OnnxEmbedder().name
    'onnx/all-MiniLM-L6-v2-384'
    """

    def __init__(
        self, model: str | None = None, *, path: str | PathLike[str] | None = None, threads: int | None = None
    ) -> None:
        if path is None and (model or DEFAULT_MODEL) not in MODEL_DIMENSIONS:
            raise ConfigurationError(
                f"{model!r} is not an ONNX model known by name ({', '.join(MODEL_DIMENSIONS)}):"
                " pass path= with the folder of its model.onnx and tokenizer.json."
            )
        if threads is not None and threads < 1:
            raise ConfigurationError(f"threads is a number above 0, not {threads!r}.")
        self._path = None if path is None else Path(path).resolve()
        self._model = model or (DEFAULT_MODEL if self._path is None else self._path.name)
        self._threads = threads or min(4, os.cpu_count() or 1)
        self._dimensions = MODEL_DIMENSIONS[self._model] if self._path is None else None
        self._loaded: _OnnxModel | None = None

    @property
    def name(self) -> str:
        """What its vectors are stored under. For a `path`, the model is opened to see how long they are."""
        if self._dimensions is None:
            self._dimensions = self._load().dimensions
        return f"onnx/{self._model}-{self._dimensions}"

    def __repr__(self) -> str:
        return f"OnnxEmbedder({self._model!r})"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """The texts' vectors; questions are embedded like anything else. The work is done in a thread."""
        return await asyncio.to_thread(self.vectors, validate_texts(texts))

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """The same as `embed`, at once and in this thread."""
        return self._load().vectors(validate_texts(texts))

    async def close(self) -> None:
        """Let go of the model; it is loaded again if it is used again."""
        self._loaded = None

    def _load(self) -> _OnnxModel:
        loaded = self._loaded
        if loaded is not None and loaded.process_id == os.getpid():
            return loaded
        with _load_lock:
            loaded = self._loaded
            if loaded is not None and loaded.process_id != os.getpid():
                _inherited_models.append(loaded)
                loaded = None
            if loaded is None:
                loaded = _OnnxModel(self._path or _download_model(self._model), self._threads)
                if self._path is None and loaded.dimensions != MODEL_DIMENSIONS[self._model]:
                    raise ConfigurationError(
                        f"{loaded} is not {self._model}: its vectors have {loaded.dimensions} dimensions."
                    )
                self._loaded = loaded
        return loaded


_load_lock = threading.Lock()
_inherited_models: list[_OnnxModel] = []
"""Models of the process that this one was forked from. Their threads are not here: to use or to free one would hang."""


def _reset_load_lock() -> None:
    """In a fork: the thread that held the lock is not here to let go of it."""
    global _load_lock
    _load_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_load_lock)


class _OnnxModel:
    """A model and its tokenizer, loaded."""

    def __init__(self, folder: Path, threads: int) -> None:
        try:
            onnxruntime = importlib.import_module("onnxruntime")
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError("onnxruntime", "onnx", "OnnxEmbedder") from error
        self.process_id = os.getpid()
        self._folder = folder
        self._run_lock = threading.Lock()
        model = next((folder / file for file in _MODEL_FILES if (folder / file).is_file()), None)
        if model is None or not (folder / "tokenizer.json").is_file():
            raise ConfigurationError(f"{folder} holds no ONNX model: it needs model.onnx and tokenizer.json.")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what it would print is in the error we raise
        try:
            self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:
            raise ConfigurationError(f"The ONNX model in {folder} cannot be loaded: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        outputs = [output.name for output in self._session.get_outputs()]
        self._output = "sentence_embedding" if "sentence_embedding" in outputs else outputs[0]
        self._inputs = {
            input.name: np.int32 if "int32" in input.type else np.int64 for input in self._session.get_inputs()
        }
        unknown = set(self._inputs) - {"input_ids", "attention_mask", "token_type_ids"}
        if unknown:
            raise ConfigurationError(
                f"The ONNX model in {folder} wants {', '.join(sorted(unknown))}: not a sentence model."
            )
        self.dimensions = self._run([self._tokenizer.encode("a")]).shape[1]

    def __str__(self) -> str:
        return f"The ONNX model in {self._folder}"

    def vectors(self, texts: Sequence[str]) -> Vectors:
        pieces: list[tuple[int, Encoding]] = []
        for index, text in enumerate(texts):
            if text.strip():
                encoded = self._tokenizer.encode(SURROGATES.sub("\ufffd", text))
                pieces += [(index, piece) for piece in [encoded, *encoded.overflowing][:_MAX_PIECES]]
        # Texts of like length go together: a batch is as wide as its longest.
        pieces.sort(key=lambda piece: len(piece[1].ids))
        sums = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for batch in _piece_batches(pieces):
            rows = to_unit_vectors(self._run([piece for _, piece in batch]), len(batch), str(self))
            for (index, piece), row in zip(batch, rows, strict=True):
                sums[index] += row * len(piece.ids)
        return normalize_rows(sums)

    def _run(self, pieces: Sequence[Encoding]) -> Any:
        width = max(len(piece.ids) for piece in pieces)
        mask = np.zeros((len(pieces), width), dtype=np.int64)
        ids = np.zeros_like(mask)
        for row, piece in enumerate(pieces):
            mask[row, : len(piece.ids)] = 1
            ids[row, : len(piece.ids)] = piece.ids
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(mask)}
        try:
            with self._run_lock:  # each run uses all the threads there are
                (states,) = self._session.run(
                    [self._output], {name: inputs[name].astype(kind) for name, kind in self._inputs.items()}
                )
        except Exception as error:
            raise EmbeddingError(f"{self} failed: {error}") from error
        if states.ndim == 2:
            return states
        weights = mask[:, :, None].astype(states.dtype)
        return (states * weights).sum(axis=1) / weights.sum(axis=1)


def _piece_batches(pieces: Sequence[tuple[int, Encoding]]) -> Iterator[Sequence[tuple[int, Encoding]]]:
    """Cut what is sorted by length into batches, of which the last is the widest."""
    start = 0
    for end in range(1, len(pieces) + 1):
        if (
            end == len(pieces)
            or end - start == _BATCH_TEXTS
            or (end - start + 1) * len(pieces[end][1].ids) > _BATCH_TOKENS
        ):
            yield pieces[start:end]
            start = end


def _download_model(model: str) -> Path:
    """The folder of a model known by name, in the Hugging Face cache."""
    advice = (
        f"Fetch it once where there is a network, or pass OnnxEmbedder(path=...) with the folder of model.onnx and"
        f" tokenizer.json from https://huggingface.co/sentence-transformers/{model}."
    )
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ConfigurationError(
            f"{model} cannot be fetched without the package 'huggingface_hub'. {advice}"
        ) from error
    files = ["onnx/model.onnx", "tokenizer.json"]
    try:
        return Path(snapshot_download(f"sentence-transformers/{model}", allow_patterns=files))
    except Exception as error:
        raise EmbeddingError(f"{model} could not be fetched: {error} {advice}", retryable=True) from error
