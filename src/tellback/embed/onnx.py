"""`OnnxEmbedder`: sentence models in ONNX format, which `onnxruntime` runs on this machine."""

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
"""The models known by name: models of `sentence-transformers` whose vector is the mean over the tokens."""

_MODEL_FILES = ("model.onnx", "onnx/model.onnx")
_MAX_TOKENS = 256
"""The number of tokens that MiniLM is made for. A longer text is embedded in pieces."""
_MAX_PIECES = 16
_BATCH_TOKENS = 8192
_BATCH_TEXTS = 64


class OnnxEmbedder:
    """A sentence model on this machine: better with paraphrases than the static embedder, and much slower.

    `path` is a folder with `model.onnx` and `tokenizer.json`. Without it, a model known by name is loaded from the
    Hugging Face cache, and downloaded when first used. A text's vector is the mean over its first 4096 tokens.
    `threads` is the number of CPU threads to use. Requires `tellback[onnx]`.

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
            raise ConfigurationError(f"threads must be above 0, got {threads!r}.")
        self._path = None if path is None else Path(path).resolve()
        self._model = model or (DEFAULT_MODEL if self._path is None else self._path.name)
        self._threads = threads or min(4, os.cpu_count() or 1)
        self._dimensions = MODEL_DIMENSIONS[self._model] if self._path is None else None
        self._loaded: _OnnxModel | None = None

    @property
    def name(self) -> str:
        """The name that is stored with the vectors. With `path`, this loads the model to find its dimensions."""
        if self._dimensions is None:
            self._dimensions = self._load().dimensions
        return f"onnx/{self._model}-{self._dimensions}"

    def __repr__(self) -> str:
        return f"OnnxEmbedder({self._model!r})"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Return the vectors of the texts, computed in a thread; `query` makes no difference."""
        return await asyncio.to_thread(self.vectors, validate_texts(texts))

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, computed in the calling thread."""
        return self._load().vectors(validate_texts(texts))

    async def close(self) -> None:
        """Release the model; the next use loads it again."""
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
"""Models of the parent process. Their threads do not exist in a fork, so using or freeing a model would hang."""


def _reset_load_lock() -> None:
    """Replace the lock after a fork, since the thread that may hold it does not exist here."""
    global _load_lock
    _load_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_load_lock)


class _OnnxModel:
    """A loaded model and its tokenizer."""

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
            raise ConfigurationError(f"{folder} has no ONNX model: it must contain model.onnx and tokenizer.json.")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # do not print errors: the error that we raise has the same text
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
                f"The ONNX model in {folder} is not a sentence model: it has the inputs {', '.join(sorted(unknown))}."
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
        # Texts of similar length share a batch, since a batch is as wide as its longest text.
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
            with self._run_lock:  # one run at a time, since each run uses all threads
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
    """Split pieces, sorted by length, into batches."""
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
    """Return the folder of a model known by name in the Hugging Face cache, and download it if necessary."""
    advice = (
        f"Download it once with a network connection, or pass OnnxEmbedder(path=...) with the folder of model.onnx"
        f" and tokenizer.json from https://huggingface.co/sentence-transformers/{model}."
    )
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ConfigurationError(
            f"{model} cannot be downloaded without the package 'huggingface_hub'. {advice}"
        ) from error
    files = ["onnx/model.onnx", "tokenizer.json"]
    try:
        return Path(snapshot_download(f"sentence-transformers/{model}", allow_patterns=files))
    except Exception as error:
        raise EmbeddingError(f"{model} could not be downloaded: {error} {advice}", retryable=True) from error
