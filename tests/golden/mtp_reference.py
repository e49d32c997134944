#!/usr/bin/env python3
"""How often the drafts of an MTP layer are right, written from the formulas, in float64. Needs
numpy. Reads tldr-mtp-10m, a DeepSeek-V3 in one BF16 file, without YaRN and with one group of
experts.

Its golden_text.json has greedy answers, the first draft at each place, and `acceptance_float32`:
for each depth the share of places at which that draft and all before it are the answer's tokens.
The first pass gives row i the target's state of token i and the embedding of token i + 1. There are
two ways to go on:

rows      Each depth computes all rows anew, every one from its own state behind the final norm and
          from its own draft of the depth before. acceptance_float32 counts these.
proposer  Each depth adds one row, at the next position, to those up to the last known token, which
          keep the keys and values of the first pass. Engines draft so.

usage: mtp_reference.py CHECKPOINT
"""
import json
import pathlib
import struct
import sys

import numpy as np

NUM_DRAFTS = 3


def read_weights(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    weights = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            bits = np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16
            weights[name] = bits.view(np.float32).astype(np.float64).reshape(entry["shape"])
    return weights


class Reference:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = read_weights(folder / "model.safetensors")
        self.num_layers = self.config["num_hidden_layers"]

    def linear(self, name, x):
        return x @ self.weights[name + ".weight"].T

    def norm(self, name, x):
        scale = np.sqrt(np.mean(x * x, -1, keepdims=True) + self.config["rms_norm_eps"])
        return x / scale * self.weights[name + ".weight"]

    def rotate(self, x, positions):  # [rows, heads, dim], pairs of neighbors
        dim = x.shape[-1]
        angles = np.outer(positions, self.config["rope_theta"] ** (-np.arange(0, dim, 2) / dim))
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)[:, None]
        return np.stack([turned.real, turned.imag], -1).reshape(x.shape)

    def attention(self, name, x, positions, past, visible):
        heads, config = self.config["num_attention_heads"], self.config
        nope, latent = config["qk_nope_head_dim"], config["kv_lora_rank"]
        low = self.norm(name + "q_a_layernorm", self.linear(name + "q_a_proj", x))
        query = self.linear(name + "q_b_proj", low).reshape(len(x), heads, -1)
        query = np.concatenate([query[..., :nope], self.rotate(query[..., nope:], positions)], -1)
        packed = self.linear(name + "kv_a_proj_with_mqa", x)
        rotated = self.rotate(packed[:, None, latent:], positions).repeat(heads, 1)
        low = self.norm(name + "kv_a_layernorm", packed[:, :latent])
        pair = self.linear(name + "kv_b_proj", low).reshape(len(x), heads, -1)
        cache = (np.concatenate([pair[..., :nope], rotated], -1), pair[..., nope:])
        if past is not None:
            cache = tuple(np.concatenate(both) for both in zip(past, cache))
        scores = np.einsum("ihd,jhd->hij", query, cache[0]) / np.sqrt(query.shape[-1])
        scores = np.where(visible, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = np.einsum("hij,jhd->ihd", weights, cache[1]).reshape(len(x), -1)
        return self.linear(name + "o_proj", mixed), cache

    def mlp(self, name, x):
        gate = self.linear(name + "gate_proj", x)
        up = self.linear(name + "up_proj", x)
        return self.linear(name + "down_proj", gate / (1 + np.exp(-gate)) * up)

    def experts(self, name, x):
        scores = 1 / (1 + np.exp(-self.linear(name + "gate", x)))
        biased = scores + self.weights[name + "gate.e_score_correction_bias"]
        chosen = np.argsort(-biased, -1, kind="stable")[:, :self.config["num_experts_per_tok"]]
        weights = np.take_along_axis(scores, chosen, 1)
        weights *= self.config["routed_scaling_factor"] / weights.sum(-1, keepdims=True)
        out = self.mlp(name + "shared_experts.", x)
        for expert in range(self.config["n_routed_experts"]):
            rows, columns = np.nonzero(chosen == expert)
            share = weights[rows, columns][:, None]
            out[rows] += share * self.mlp(f"{name}experts.{expert}.", x[rows])
        return out

    def layer(self, index, x, positions, past=None, visible=None):
        """[rows, hidden_size], and keys and values of the past and of these rows."""
        name = f"model.layers.{index}."
        if visible is None:
            visible = np.tril(np.ones((len(x), len(x)), bool))
        normed = self.norm(name + "input_layernorm", x)
        mixed, cache = self.attention(name + "self_attn.", normed, positions, past, visible)
        x = x + mixed
        dense = index < self.config["first_k_dense_replace"]
        feed_forward = self.mlp if dense else self.experts
        normed = self.norm(name + "post_attention_layernorm", x)
        return x + feed_forward(name + "mlp.", normed), cache

    def target(self, ids):
        x = self.weights["model.embed_tokens.weight"][ids]
        for index in range(self.num_layers):
            x, _ = self.layer(index, x, np.arange(len(ids)))
        return self.norm("model.norm", x)

    def draft(self, hidden, next_ids, positions, past=None, visible=None):
        """States behind the final norm, drafts, keys and values."""
        name = f"model.layers.{self.num_layers}."
        embedded = self.weights["model.embed_tokens.weight"][next_ids]
        pair = [self.norm(name + "enorm", embedded), self.norm(name + "hnorm", hidden)]
        x = self.linear(name + "eh_proj", np.concatenate(pair, -1))
        x, cache = self.layer(self.num_layers, x, positions, past, visible)
        state = self.norm(name + "shared_head.norm", x)
        return state, self.linear("lm_head", state).argmax(-1), cache

    def drafts_of_rows(self, ids, first_row):
        state, drafts = self.target(ids)[:-1], ids[1:]
        by_depth = []
        for _ in range(NUM_DRAFTS):
            state, drafts, _ = self.draft(state, drafts, np.arange(len(drafts)))
            by_depth.append(drafts[first_row:])
        return by_depth

    def drafts_of_proposer(self, ids, first_row):
        rows = np.arange(first_row, len(ids) - 1)
        state, drafts, cache = self.draft(self.target(ids)[:-1], ids[1:], np.arange(len(ids) - 1))
        visible = np.tril(np.ones((len(ids) - 1, len(ids) - 1), bool))[rows]
        state, drafts = state[rows], drafts[rows]
        by_depth = [drafts]
        for depth in range(1, NUM_DRAFTS):
            # Each row stands for a sequence that ends there, and sees what was drafted behind it.
            visible = np.concatenate([visible, np.eye(len(rows), dtype=bool)], 1)
            state, drafts, cache = self.draft(state, drafts, rows + depth, cache, visible)
            by_depth.append(drafts)
        return by_depth


def count(by_depth, output):
    """[depth, 2]: drafts that are right, those before them too, and places."""
    counts = np.zeros((NUM_DRAFTS, 2), int)
    for place in range(len(output) - 1):
        right = True
        for depth in range(min(NUM_DRAFTS, len(output) - 1 - place)):
            right = right and by_depth[depth][place] == output[place + 1 + depth]
            counts[depth] += (right, 1)
    return counts


def walk(by_depth, output):
    """[1 + depth]: steps that verify drafts, each behind what the one before accepted, and those
    that accept the draft of a depth. A step samples one token more than it verifies."""
    counts = np.zeros(1 + NUM_DRAFTS, int)
    place = 0
    while place + 2 < len(output):
        counts[0] += 1
        accepted = 0
        while (accepted < min(NUM_DRAFTS, len(output) - 2 - place)
               and by_depth[accepted][place] == output[place + 1 + accepted]):
            accepted += 1
            counts[accepted] += 1
        place += accepted + 1
    return counts


def main():
    folder = pathlib.Path(sys.argv[1])
    reference = Reference(folder)
    golden = json.loads((folder / "golden_text.json").read_text())
    print("golden  ", golden["acceptance_float32"])
    for name in ("rows", "proposer"):
        counts, steps = np.zeros((NUM_DRAFTS, 2), int), np.zeros(1 + NUM_DRAFTS, int)
        for question in golden["float32"]:
            ids = np.array(question["prompt_ids"] + question["output_ids"])
            first_row = len(question["prompt_ids"]) - 1
            by_depth = getattr(reference, "drafts_of_" + name)(ids, first_row)
            counts += count(by_depth, question["output_ids"])
            steps += walk(by_depth, question["output_ids"])
        print(f"{name:8}", [f"{right}/{places} = {right / places:.4f}" for right, places in counts])
        print("in steps", [f"{right}/{steps[0]} = {right / steps[0]:.4f}" for right in steps[1:]])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[-1].strip())
    main()
