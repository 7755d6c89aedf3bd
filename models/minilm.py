"""Sentences for MiniLM-L6: their tokens and the embeddings that the real weights give."""

from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

import nets
from weights import packaged_safetensors

FOLDER = Path(__file__).resolve().parent / "minilm"
NAMES = ("input_ids", "attention_mask", "token_type_ids")


def sentences():
    return (FOLDER / "sentences.txt").read_text().splitlines()


def encode(texts):
    """Token ids, masks and types as int64 [sentence, token], padded to the longest sentence."""
    tokenizer = Tokenizer.from_file(str(packaged_safetensors().parent / "tokenizer.json"))
    tokenizer.enable_padding()  # the file asks for 128 tokens whatever the sentence
    encoded = tokenizer.encode_batch(texts)
    columns = ([e.ids for e in encoded], [e.attention_mask for e in encoded], [e.type_ids for e in encoded])
    return {name: torch.tensor(column, dtype=torch.int64) for name, column in zip(NAMES, columns)}


def tokens(dims):
    """The first two sentences: the golden run of the bare graph."""
    inputs = encode(sentences()[: dims["batch"]])
    assert inputs["input_ids"].shape == (dims["batch"], dims["seq"]), inputs["input_ids"].shape
    return inputs


def write_embeddings():
    """Mean over each sentence's tokens of the last hidden state, scaled to length 1."""
    inputs = encode(sentences())
    # The library's own mask code and attention, not those of the exported graph.
    hidden = nets.minilm(attention="sdpa", explicit_mask=False)(**inputs)
    mask = inputs["attention_mask"][:, :, None].to(torch.float32)
    mean = (hidden * mask).sum(1) / mask.sum(1)
    embeddings = torch.nn.functional.normalize(mean, dim=1).numpy()
    arrays = {name: array.numpy() for name, array in inputs.items()}
    np.savez(FOLDER / "embeddings.npz", **arrays, embeddings=embeddings)
    alike = embeddings @ embeddings.T
    print(f"  {len(embeddings)} sentences; the first is most like number {alike[0, 1:].argmax() + 2}")
