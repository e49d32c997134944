#!/usr/bin/env python3
"""What memory leaves to gain: the bytes that a step reads and writes without drafts and with three,
where tokens choose experts evenly and independently, and how long the latter takes at the least
beside a measured step of the former. Contexts are short: their keys and values are left out.

usage: floors.py READ_TB_PER_S SHAPE BATCH:MS... [SHAPE BATCH:MS...]
       floors.py 4.585 qwen3-next-80b-fp8 1:3.12 8:6.54 64:21.76 deepseek-v3-6 1:1.89 8:3.44 64:8.43
"""
import importlib.util
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NUM_DRAFTS = 3
FP8, BF16, F32 = 1, 2, 4


def shapes():
    spec = importlib.util.spec_from_file_location("write_shape", ROOT / "tools/write_shape.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SHAPES


def chosen(num_experts, per_token, rows):
    """Experts that at least one of so many tokens chooses, on average."""
    return num_experts * (1 - (1 - per_token / num_experts) ** rows)


class QwenNext:
    def __init__(self, config):
        self.c, hidden = config, config["hidden_size"]
        self.head = config["vocab_size"] * hidden
        keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
        values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
        self.delta_net = FP8 * hidden * (2 * keys + 3 * values)
        query = config["num_attention_heads"] * config["head_dim"]
        pair = 2 * config["num_key_value_heads"] * config["head_dim"]
        self.attention = FP8 * hidden * (3 * query + pair)
        self.state = values * config["linear_key_head_dim"] * F32
        self.num_layers = config["num_hidden_layers"]
        self.num_attention = self.num_layers // config["full_attention_interval"]
        self.projection = FP8 * 2 * hidden * hidden

    def experts(self, rows):
        c = self.c
        one = FP8 * 3 * c["hidden_size"] * c["moe_intermediate_size"]
        shared = FP8 * 3 * c["hidden_size"] * c["shared_expert_intermediate_size"]
        router = BF16 * c["hidden_size"] * c["num_experts"]
        return one * chosen(c["num_experts"], c["num_experts_per_tok"], rows) + shared + router

    def layers(self, rows, batch):
        num_delta = self.num_layers - self.num_attention
        states = batch * num_delta * self.state * (1 + rows // batch)  # one read, one for each row
        return (num_delta * self.delta_net + self.num_attention * self.attention +
                self.num_layers * self.experts(rows) + states)

    def draft_layer(self, rows):
        return self.attention + self.experts(rows) + self.projection


class DeepseekV3:
    def __init__(self, config):
        self.c, hidden = config, config["hidden_size"]
        self.head = config["vocab_size"] * hidden
        heads, rank = config["num_attention_heads"], config["kv_lora_rank"]
        nope, rope = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
        self.attention = FP8 * (hidden * (config["q_lora_rank"] + rank + rope) +
                                config["q_lora_rank"] * heads * (nope + rope) +
                                heads * config["v_head_dim"] * hidden)
        # Expanded by heads, in the model's type.
        self.attention += BF16 * rank * heads * (nope + config["v_head_dim"])
        self.num_dense = config["first_k_dense_replace"]
        self.num_layers = config["num_hidden_layers"]
        self.dense = FP8 * 3 * hidden * config["intermediate_size"]
        self.projection = BF16 * 2 * hidden * hidden

    def experts(self, rows):
        c = self.c
        one = FP8 * 3 * c["hidden_size"] * c["moe_intermediate_size"]
        router = BF16 * c["hidden_size"] * c["n_routed_experts"]
        number = chosen(c["n_routed_experts"], c["num_experts_per_tok"], rows)
        return one * (number + c["n_shared_experts"]) + router

    def layers(self, rows, batch):
        del batch
        return (self.num_layers * self.attention + self.num_dense * self.dense +
                (self.num_layers - self.num_dense) * self.experts(rows))

    def draft_layer(self, rows):
        return self.attention + self.experts(rows) + self.projection


def step_bytes(model, batch, num_drafts, head_size):
    """`head_size`: bytes of a weight of the head that drafts are chosen by."""
    rows = batch * (1 + num_drafts)
    total = model.layers(rows, batch) + BF16 * model.head
    for draft in range(num_drafts):
        total += model.draft_layer(rows if draft == 0 else batch) + head_size * model.head
    return total


def main():
    read, arguments = float(sys.argv[1]) * 1e12, sys.argv[2:]
    model = None
    for argument in arguments:
        if ":" not in argument:
            config = shapes()[argument]
            is_hybrid = config["architectures"][0].startswith("Qwen3Next")
            name, model = argument, (QwenNext if is_hybrid else DeepseekV3)(config)
            continue
        batch, plain = int(argument.split(":")[0]), float(argument.split(":")[1]) * 1e-3
        # Few rows read the head's copy in FP8.
        drafted = step_bytes(model, batch, NUM_DRAFTS, FP8 if batch <= 8 else BF16)
        without = step_bytes(model, batch, 0, 0)
        print(f"{name} batch {batch}: {without / 1e9:.1f} GB without, {drafted / 1e9:.1f} GB with "
              f"{NUM_DRAFTS} drafts; these are read in {drafted / read * 1e3:.2f} ms, "
              f"{drafted / read / plain:.2f} of a step of {plain * 1e3:.2f} ms, which is at "
              f"{without / read / plain:.0%} of the bandwidth")


if __name__ == "__main__":
    main()
