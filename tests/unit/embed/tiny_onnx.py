"""A sentence model of a few bytes for `OnnxEmbedder`: this module writes the ONNX file field by field.

The state of each token is its row of a table, so that a test can compute the expected vectors without the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "bees", "roof", "ferry", "north", "nan"]
SIZE = 6
FLOAT, INT32, INT64 = 1, 6, 7
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def table() -> Any:
    """Return token vectors. The padding's row is the largest, so that a mean with padding is clearly wrong."""
    rows = np.random.default_rng(7).normal(size=(len(WORDS), SIZE)).astype(np.float32)
    rows[0] = 100
    rows[-1] = np.nan
    return rows


def write_model(
    folder: Path, *, inputs: Sequence[str] = INPUTS, kind: int = INT64, pooled: bool = False, shown_size: bool = True
) -> Path:
    """Write `model.onnx` and `tokenizer.json`. A `pooled` model returns one vector per text, of its first token."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes = [_node("Gather", ["table", "input_ids"], "last_hidden_state")]
    outputs = [_value("last_hidden_state", FLOAT, ["batch", "length", SIZE if shown_size else "size"])]
    weights = [_tensor("table", FLOAT, table())]
    if pooled:
        nodes.append(_node("Gather", ["last_hidden_state", "first"], "sentence_embedding", axis=1))
        outputs.append(_value("sentence_embedding", FLOAT, ["batch", SIZE]))
        weights.append(_tensor("first", INT64, np.array(0, dtype=np.int64)))
    graph = b"".join(
        [
            *(_field(1, node) for node in nodes),
            _field(2, b"tiny"),
            *(_field(5, weight) for weight in weights),
            *(_field(11, _value(name, kind, ["batch", "length"])) for name in inputs),
            *(_field(12, output) for output in outputs),
        ]
    )
    opset = _field(1, b"") + _field(2, 17)
    (folder / "model.onnx").write_bytes(_field(1, 8) + _field(7, graph) + _field(8, opset))
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """Return a tokenizer that pads and truncates to a fixed length, like MiniLM's."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({word: id for id, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_padding(length=128)
    tokenizer.enable_truncation(128)
    tokenizer.save(str(folder / "tokenizer.json"))


def _field(number: int, value: bytes | int) -> bytes:
    """Encode a field of a protobuf message: a number, or bytes after their length."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _node(kind: str, inputs: Sequence[str], output: str, **numbers: int) -> bytes:
    attributes = [_field(1, name.encode()) + _field(3, value) + _field(20, 2) for name, value in numbers.items()]
    return b"".join(
        [
            *(_field(1, name.encode()) for name in inputs),
            _field(2, output.encode()),
            _field(4, kind.encode()),
            *(_field(5, attribute) for attribute in attributes),
        ]
    )


def _tensor(name: str, kind: int, values: Any) -> bytes:
    dims = b"".join(_field(1, int(size)) for size in values.shape)
    return dims + _field(2, kind) + _field(8, name.encode()) + _field(9, values.tobytes())


def _value(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    dims = [_field(1, size) if isinstance(size, int) else _field(2, size.encode()) for size in shape]
    tensor = _field(1, kind) + _field(2, b"".join(_field(1, dim) for dim in dims))
    return _field(1, name.encode()) + _field(2, _field(1, tensor))
