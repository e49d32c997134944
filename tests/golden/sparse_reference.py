#!/usr/bin/env python3
"""Golden logits of DeepSeek sparse attention (DeepSeek-V3.2, GLM-5), in float64 and written from
the formulas. Needs numpy.

An indexer's score is a sum of rectified products, so many keys of a row score exactly 0, and where
the k-th best of a row is 0 its choice among them decides the logits. Transformers takes whichever
its selection algorithm leaves in front, which depends on the keys that come after the query as
well; atom takes the first. Up to the first such row of a sequence both agree; from there on a
golden value is what this computes, and the greedy continuation likewise.

usage: sparse_reference.py check CASE    compare with golden.safetensors, where both are decided
       sparse_reference.py write CASE    recompute the others; the file must pass the check
       sparse_reference.py create CASE SOURCE
            golden files for a case with a config.json and checkpoint.json of its own, of the
            prompts of case SOURCE
"""
import json
import pathlib
import struct
import sys

import numpy as np

NUM_GREEDY = 24
BOUND = 1e-4
DTYPES = {"F32": np.float32, "I32": np.int32}


def read_tensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            values = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]])
            tensors[name] = values.reshape(entry["shape"])
    return tensors


def write_tensors(path, tensors):
    names = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    header, blobs, offset = {}, [], 0
    for name, values in tensors.items():
        blob = np.ascontiguousarray(values).tobytes()
        header[name] = {"dtype": names[values.dtype], "shape": list(values.shape),
                        "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def to_bfloat16(values):
    bits = values.astype(np.float32).view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def generate(name, entry, seed):
    """A tensor of checkpoint.json, as tests/support/synthetic_checkpoint.h has it."""
    mask, start = 0xFFFFFFFFFFFFFFFF, 0xCBF29CE484222325
    for byte in name.encode():
        start = ((start ^ byte) * 0x100000001B3) & mask
    start = (start + seed * 0xD1B54A32D192ED03) & mask
    count = int(np.prod(entry["shape"]))
    with np.errstate(over="ignore"):
        x = np.uint64(start) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(
            0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    assert entry["gen"]["kind"] == "normal"
    words = sum(((x >> np.uint64(16 * i)) & np.uint64(0xFFFF)).astype(np.float64)
                for i in range(4))
    values = entry["gen"]["mean"] + entry["gen"]["std"] * ((words - 131070.0) / 37837.2)
    values = values.astype(np.float32).astype(np.float64).reshape(entry["shape"])
    return to_bfloat16(values) if entry["dtype"] == "bfloat16" else values


def silu(x):
    return x / (1 + np.exp(-x))


def best(scores, count):
    """Of each row the positions of the largest, of equal ones the first."""
    return np.argsort(-scores, axis=-1, kind="stable")[:, :count]


class Model:
    """`rounded` is applied to what every operator leaves."""

    def __init__(self, folder, rounded=lambda x: x):
        checkpoint = json.loads((folder / "checkpoint.json").read_text())
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {name: generate(name, entry, checkpoint["seed"])
                        for name, entry in checkpoint["tensors"].items()}
        self.rounded = rounded
        self.latent_eps = self.config["rms_norm_eps"]  # transformers: 1e-6, whatever that says

    def linear(self, x, name):
        return self.rounded(x @ self.weights[name + ".weight"].T)

    def rms_norm(self, x, name, eps):
        scaled = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
        return self.rounded(scaled * self.weights[name + ".weight"])

    def layer_norm(self, x, name):
        centered = x - x.mean(-1, keepdims=True)
        scaled = centered / np.sqrt((centered * centered).mean(-1, keepdims=True) + 1e-6)
        return scaled * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def frequencies(self):
        config = self.config
        size = config["qk_rope_head_dim"]
        base = (config.get("rope_parameters") or config)["rope_theta"]
        plain = base ** (-np.arange(0, size, 2) / size)
        yarn = config.get("rope_scaling")
        if yarn is None:
            return plain

        def dimension(rotations):
            turns = yarn["original_max_position_embeddings"] / (2 * np.pi * rotations)
            return size * np.log(turns) / (2 * np.log(base))

        low = max(np.floor(dimension(yarn["beta_fast"])), 0)
        high = min(np.ceil(dimension(yarn["beta_slow"])), size - 1)
        ramp = np.clip((np.arange(size // 2) - low) / max(high - low, 0.001), 0, 1)
        return plain / yarn["factor"] * ramp + plain * (1 - ramp)

    def rotated(self, x, interleaved):
        """x [tokens, ..., size]; the pairs' first halves, then their second."""
        angles = np.arange(len(x))[:, None] * self.frequencies()
        angles = angles.reshape((len(x),) + (1,) * (x.ndim - 2) + (-1,))
        half = x.shape[-1] // 2
        a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
        cos, sin = np.cos(angles), np.sin(angles)
        return self.rounded(np.concatenate([a * cos - b * sin, b * cos + a * sin], -1))

    def selected(self, x, latent, name):
        """[tokens, tokens] bool, and the first row in which the choice is one among equals."""
        config = self.config
        rope, size, heads = (config["qk_rope_head_dim"], config["index_head_dim"],
                             config["index_n_heads"])
        interleaved = config.get("indexer_rope_interleave", config["model_type"] == "glm_moe_dsa")

        def partly_rotated(v):
            return np.concatenate([self.rotated(v[..., :rope], interleaved), v[..., rope:]], -1)

        tokens, top_k = len(x), config["index_topk"]
        q = partly_rotated(self.linear(latent, name + "wq_b").reshape(tokens, heads, size))
        k = partly_rotated(self.layer_norm(self.linear(x, name + "wk"), name + "k_norm"))
        weights = x @ self.weights[name + "weights_proj.weight"].T * heads**-0.5
        products = np.maximum(np.einsum("thd,sd->ths", q, k) * size**-0.5, 0)
        scores = np.einsum("th,ths->ts", weights, products)
        scores[np.triu_indices(tokens, 1)] = -np.inf
        result = np.zeros((tokens, tokens), bool)
        np.put_along_axis(result, best(scores, top_k), True, -1)
        first_tie = tokens
        if tokens > top_k:
            ordered = -np.sort(-scores, -1)
            ties = np.isfinite(ordered[:, top_k]) & (ordered[:, top_k - 1] == ordered[:, top_k])
            first_tie = int(np.argmax(ties)) if ties.any() else tokens
        return result & np.tri(tokens, dtype=bool), first_tie

    def attention(self, x, latent, visible, name):
        config = self.config
        heads, nope, rope, value, rank = (config["num_attention_heads"], config["qk_nope_head_dim"],
                                          config["qk_rope_head_dim"], config["v_head_dim"],
                                          config["kv_lora_rank"])
        tokens = len(x)
        scale = (nope + rope) ** -0.5
        yarn = config.get("rope_scaling")
        if yarn:
            scale *= (0.1 * yarn["mscale_all_dim"] * np.log(yarn["factor"]) + 1) ** 2
        q = self.linear(latent, name + "q_b_proj").reshape(tokens, heads, nope + rope)
        kv = self.linear(x, name + "kv_a_proj_with_mqa")
        compressed = self.rms_norm(kv[:, :rank], name + "kv_a_layernorm", self.latent_eps)
        key = self.rotated(kv[:, rank:], True)
        expanded = self.linear(compressed, name + "kv_b_proj").reshape(tokens, heads, nope + value)
        scores = np.einsum("thd,shd->hts", q[..., :nope], expanded[..., :nope])
        scores += np.einsum("thd,sd->hts", self.rotated(q[..., nope:], True), key)
        scores = np.where(visible, scores * scale, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p = self.rounded(p / p.sum(-1, keepdims=True))
        out = self.rounded(np.einsum("hts,shd->thd", p, expanded[..., nope:]))
        return self.linear(out.reshape(tokens, -1), name + "o_proj")

    def mlp(self, x, name):
        gated = silu(self.linear(x, name + "gate_proj")) * self.linear(x, name + "up_proj")
        return self.linear(self.rounded(gated), name + "down_proj")

    def experts(self, x, name):
        config = self.config
        tokens, groups = len(x), config["n_group"]
        scores = 1 / (1 + np.exp(-(x @ self.weights[name + "gate.weight"].T)))
        biased = scores + self.weights[name + "gate.e_score_correction_bias"]
        grouped = biased.reshape(tokens, groups, -1)
        kept = np.zeros((tokens, groups), bool)
        of_groups = np.sort(grouped, -1)[..., -2:].sum(-1)
        np.put_along_axis(kept, best(of_groups, config["topk_group"]), True, -1)
        biased = np.where(kept[..., None], grouped, -np.inf).reshape(tokens, -1)
        chosen = best(biased, config["num_experts_per_tok"])
        weights = np.take_along_axis(scores, chosen, -1)
        weights *= config["routed_scaling_factor"] / weights.sum(-1, keepdims=True)
        y = self.mlp(x, name + "shared_experts.")
        for expert in range(scores.shape[1]):
            share = (weights * (chosen == expert)).sum(-1, keepdims=True)
            y = y + share * self.mlp(x, f"{name}experts.{expert}.")
        return self.rounded(y)

    def has_indexer(self, layer):
        frequency = self.config.get("index_topk_freq", 1)
        offset = self.config.get("index_skip_topk_offset", 2)
        return max(layer - offset + 1, 0) % frequency == 0

    def forward(self, ids):
        """-> logits, hidden states, the first row that depends on a choice among equals."""
        eps = self.config["rms_norm_eps"]
        x = self.weights["model.embed_tokens.weight"][ids]
        hidden, decided, visible = [x], len(ids), None
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}."
            h = self.rms_norm(x, name + "input_layernorm", eps)
            attention = name + "self_attn."
            latent = self.rms_norm(self.linear(h, attention + "q_a_proj"),
                                   attention + "q_a_layernorm", self.latent_eps)
            if self.has_indexer(layer):
                visible, first_tie = self.selected(h, latent, attention + "indexer.")
                decided = min(decided, first_tie)
            x = self.rounded(x + self.attention(h, latent, visible, attention))
            h = self.rms_norm(x, name + "post_attention_layernorm", eps)
            is_dense = layer < self.config["first_k_dense_replace"]
            x = self.rounded(x + (self.mlp if is_dense else self.experts)(h, name + "mlp."))
            hidden.append(x)
        hidden[-1] = self.rms_norm(x, "model.norm", eps)
        return hidden[-1] @ self.weights["lm_head.weight"].T, hidden, decided

    def greedy(self, ids):
        """-> tokens, margins, whether none depends on a choice among equals."""
        tokens, margins = [], []
        for _ in range(NUM_GREEDY):
            all_ids = np.concatenate([ids, np.array(tokens, np.int64)])
            logits, _, decided = self.forward(all_ids)
            second, first = np.sort(logits[-1])[-2:]
            tokens.append(int(np.argmax(logits[-1])))
            margins.append(first - second)
        is_decided = decided == len(all_ids)
        return np.array(tokens, np.int32), np.array(margins, np.float32), is_decided


def error(ours, golden):
    return float(np.linalg.norm(ours - golden) / np.linalg.norm(golden))


def prompts_of(golden):
    return sorted(name[:-len(".ids")] for name in golden if name.endswith(".ids"))


def check(model, golden):
    """Fails unless logits agree where nothing was chosen among equals."""
    for prompt in prompts_of(golden):
        logits, hidden, decided = model.forward(golden[prompt + ".ids"])
        rows = np.flatnonzero(golden[prompt + ".positions"] < decided)
        ours = logits[golden[prompt + ".positions"][rows]]
        found = error(ours, golden[prompt + ".logits"][rows])
        print(f"{prompt}: {len(rows)} of {len(golden[prompt + '.positions'])} positions are "
              f"before the first choice among equals; error {found:.1e}")
        assert found < BOUND
        for layer, state in enumerate(hidden):
            if decided == len(state) and f"{prompt}.hidden.{layer}" in golden:
                assert error(state, golden[f"{prompt}.hidden.{layer}"]) < BOUND


def recompute(model, golden):
    """Logits and answers that `golden` does not have, or that depend on a choice among equals."""
    for prompt in prompts_of(golden):
        ids, positions = golden[prompt + ".ids"], golden[prompt + ".positions"]
        logits, hidden, decided = model.forward(ids)
        if prompt == "prompt.0" and "prompt.0.hidden.0" not in golden:
            golden.update({f"prompt.0.hidden.{layer}": state.astype(np.float32)
                           for layer, state in enumerate(hidden)})
        ours = logits[positions].astype(np.float32)
        theirs = golden.get(prompt + ".logits", ours)
        golden[prompt + ".logits"] = np.where(positions[:, None] < decided, theirs, ours)
        tokens, margins, is_decided = model.greedy(ids)
        if is_decided and prompt + ".greedy" in golden:
            continue
        golden[prompt + ".greedy"], golden[prompt + ".greedy_margins"] = tokens, margins


def create(folder, source):
    """How far bfloat16 moves the logits is found by rounding."""
    model, rounded = Model(folder), Model(folder, to_bfloat16)
    golden = {name: values for name, values in read_tensors(source / "golden.safetensors").items()
              if name.endswith((".ids", ".positions"))}
    recompute(model, golden)
    write_tensors(folder / "golden.safetensors", golden)
    errors = []
    for prompt in prompts_of(golden):
        ours = rounded.forward(golden[prompt + ".ids"])[0][golden[prompt + ".positions"]]
        errors.append(error(ours, golden[prompt + ".logits"]))
    names = sorted(model.weights)[:3]
    fingerprints = {name: {"first": model.weights[name].reshape(-1)[:3].tolist(),
                           "sum": float(model.weights[name].sum())} for name in names}
    (folder / "golden.json").write_text(json.dumps(
        {"prompts": [{"len": len(golden[prompt + ".ids"])} for prompt in prompts_of(golden)],
         "oracle_bf16_relative_error": errors, "fingerprints": fingerprints, "quant": None,
         "architecture": model.config["architectures"][0]}, indent=1) + "\n")


def main(arguments):
    if len(arguments) < 2 or arguments[0] not in ("check", "write", "create"):
        raise SystemExit(__doc__)
    folder = pathlib.Path(arguments[1])
    if arguments[0] == "create":
        return create(folder, pathlib.Path(arguments[2]))
    model, golden = Model(folder), read_tensors(folder / "golden.safetensors")
    check(model, golden)
    if arguments[0] == "write":
        recompute(model, golden)
        write_tensors(folder / "golden.safetensors", golden)


if __name__ == "__main__":
    main(sys.argv[1:])
