#!/usr/bin/env python3
"""What an EAGLE-3 head drafts, written from the formulas, in float64. Needs numpy.

The head's inputs are the target's hidden states that a golden case stores for its first prompt
(hidden.<i> is what enters layer i). Prints the JSON that tests/data/eagle3/<case>/golden.json
holds: for some positions of the prompt the logits of the first draft, and for each prefix of it the
drafts as a proposer makes them: the first pass covers all rows up to the last known token, each
further draft adds a row that reads the states of the one before.

CASE is the golden case's folder, TARGET and HEAD are checkpoints that write_checkpoint made of it
and of tests/data/eagle3/<case>.

usage: eagle3_reference.py CASE TARGET HEAD
"""
import json
import pathlib
import struct
import sys

import numpy as np

NUM_DRAFTS = 3
NUM_POSITIONS = 6
DTYPES = {"F32": np.float32, "I32": np.int32, "I64": np.int64, "BOOL": np.uint8}


def read_tensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            bits = np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16
            values = bits.view(np.float32).astype(np.float64)
        else:
            values = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def read_checkpoint(folder):
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(read_tensors(path))
    return tensors


class Head:
    def __init__(self, folder, target_embedding):
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = read_checkpoint(folder)
        self.embedding = self.weights.get("embed_tokens.weight", target_embedding)
        self.first = "midlayer" if "midlayer.hidden_norm.weight" in self.weights else "layers.0"

    def norm(self, name, x):
        scale = np.sqrt(np.mean(x * x, -1, keepdims=True) + self.config["rms_norm_eps"])
        return x / scale * self.weights[name + ".weight"]

    def linear(self, name, x):
        return x @ self.weights[name + ".weight"].T

    def rotate(self, x, positions):  # [rows, heads, dim], halves
        dim = x.shape[-1]
        angles = np.outer(positions, self.config["rope_theta"] ** (-np.arange(0, dim, 2) / dim))
        turn = np.exp(1j * angles)[:, None]
        turned = (x[..., :dim // 2] + 1j * x[..., dim // 2:]) * turn
        return np.concatenate([turned.real, turned.imag], -1)

    def attention(self, name, x, positions, past):
        heads, groups = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        dim = self.config["head_dim"]
        query = self.rotate(self.linear(name + "q_proj", x).reshape(len(x), heads, dim), positions)
        key = self.rotate(self.linear(name + "k_proj", x).reshape(len(x), groups, dim), positions)
        value = self.linear(name + "v_proj", x).reshape(len(x), groups, dim)
        if past is not None:
            key, value = np.concatenate([past[0], key]), np.concatenate([past[1], value])
        first = len(key) - len(x)
        visible = np.tril(np.ones((len(x), len(key)), bool), first)
        share = heads // groups
        scores = np.einsum("ihd,jhd->hij", query, key.repeat(share, 1)) / np.sqrt(dim)
        weights = np.where(visible, scores, -np.inf)
        weights = np.exp(weights - weights.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = np.einsum("hij,jhd->ihd", weights, value.repeat(share, 1)).reshape(len(x), -1)
        return self.linear(name + "o_proj", mixed), (key, value)

    def mlp(self, name, x):
        gate = self.linear(name + "gate_proj", x)
        return self.linear(name + "down_proj",
                           gate / (1 + np.exp(-gate)) * self.linear(name + "up_proj", x))

    def project(self, states):
        if self.config.get("fc_norm"):
            states = [self.norm(f"fc_norm.{i}", state) for i, state in enumerate(states)]
        x = np.concatenate(states, -1)
        if self.config.get("norm_before_fc"):
            x = self.norm("input_norm", x)
        return self.linear("fc", x)

    def forward(self, state, token_ids, positions, past):
        """What the next draft reads, logits, and the keys and values of each layer."""
        name = self.first + "."
        normed = self.norm(name + "hidden_norm", state)
        pair = [self.norm(name + "input_layernorm", self.embedding[token_ids]), normed]
        residual = normed if self.config.get("norm_before_residual") else state
        mixed, kept = self.attention(
            name + "self_attn.", np.concatenate(pair, -1), positions, past and past[0])
        x, caches = residual + mixed, [kept]
        x = x + self.mlp(name + "mlp.", self.norm(name + "post_attention_layernorm", x))
        for layer in range(1, self.config["num_hidden_layers"]):
            name = f"layers.{layer}."
            normed = self.norm(name + "input_layernorm", x)
            mixed, kept = self.attention(name + "self_attn.", normed, positions,
                                         past and past[layer])
            caches.append(kept)
            x = x + mixed
            x = x + self.mlp(name + "mlp.", self.norm(name + "post_attention_layernorm", x))
        out = self.norm("norm", x)
        feedback = out if self.config.get("norm_output") else x
        return feedback, self.linear("lm_head", out), caches

    def token_of(self, draft):
        return int(draft + (self.weights["d2t"][draft] if "d2t" in self.weights else 0))

    def drafts_behind(self, states, ids, count):
        """Behind the first `count` tokens, of which the target has computed all but the last."""
        rows = np.arange(count - 1)
        state, logits, past = self.forward(
            self.project([each[rows] for each in states]), ids[1:count], rows, None)
        drafts = []
        while True:
            drafts.append(self.token_of(int(logits[-1].argmax())))
            if len(drafts) == NUM_DRAFTS:
                return drafts
            position = np.array([count - 2 + len(drafts)])
            state, logits, past = self.forward(
                state[-1:], np.array(drafts[-1:]), position, past)


def main():
    case, target, folder = (pathlib.Path(argument) for argument in sys.argv[1:])
    golden = read_tensors(case / "golden.safetensors")
    head = Head(folder, read_checkpoint(target)["model.embed_tokens.weight"])
    ids = golden["prompt.0.ids"].astype(int)
    layers = head.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    states = [golden[f"prompt.0.hidden.{layer}"].astype(np.float64) for layer in layers]
    rows = np.arange(len(ids) - 1)
    _, logits, _ = head.forward(head.project([each[rows] for each in states]), ids[1:], rows, None)
    positions = [int(p) for p in np.linspace(0, len(rows) - 1, NUM_POSITIONS)]
    print(json.dumps({
        "positions": positions,
        "logits": [[float(f"{x:.7g}") for x in logits[p]] for p in positions],
        "drafts": [head.drafts_behind(states, ids, count) for count in range(2, len(ids) + 1)],
    }))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__.split("\n\n")[-1].strip())
    main()
