#!/usr/bin/env python3
"""What drafts gain on the CPU: the time of a token with them and without, in turns.

Weights are made up, so the text is: a draft model's guesses would all be wrong. Drafts count as
accepted as often as --forced-acceptance says: for mtp 1.47 of 3 on average, as the trained layer of
a small model has it (src/runner/speculation_test.cc), for ngram 2 of 4. There all weights are zero,
so that the same token comes again and again and the text has something to look up.

usage: measure.py ATOM [--batches 1,4,16] [--rounds 3] [--shapes ngram,mtp]
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

QWEN3_1_7B = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936,
    "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu",
    "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "eos_token_id": 151645}

# DeepSeek's attention and draft layer, dense, large enough that reading weights bounds a step.
DENSE_MTP = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": 32000,
    "hidden_size": 2048, "intermediate_size": 8192, "moe_intermediate_size": 1024,
    "num_hidden_layers": 12, "num_attention_heads": 16, "num_key_value_heads": 16,
    "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 12, "num_nextn_predict_layers": 1,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "eos_token_id": 2}

SHAPES = {
    "ngram": (QWEN3_1_7B, "zero", ["--method", "ngram", "--num-speculative-tokens", "4",
                                   "--forced-acceptance", "2"]),
    "mtp": (DENSE_MTP, "random", ["--method", "mtp", "--num-speculative-tokens", "3",
                                  "--forced-acceptance", "1.47"]),
}


def seconds_per_token(atom, folder, weights, batch, flags):
    """Of each sequence, and the tokens that a verifying step gave it."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [atom, "bench", "latency", folder, "--load-dummy", weights, "--dtype",
                   "bfloat16", "--device", "cpu", "--shapes", f"{batch}x32x97", "--difference",
                   "--num-iters", "1", "--warmup", "1", "--max-num-batched-tokens", "2048",
                   "--output-json", file.name, *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        report = json.load(open(file.name))
    measurement = report["results"][0]
    sample = measurement["samples"][0]
    verified = sample.get("num_verifications", 0)
    return (sample["decode_step"],
            1 + sum(sample["num_accepted_per_position"]) / verified if verified else 1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("atom")
    parser.add_argument("--batches", default="1,4,16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", default="ngram,mtp")
    options = parser.parse_args()
    for name in options.shapes.split(","):
        config, weights, flags = SHAPES[name]
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
            for batch in map(int, options.batches.split(",")):
                largest = ["--speculative-disable-by-batch-size", str(batch)]
                pairs = []
                for _ in range(options.rounds):
                    without, _ = seconds_per_token(options.atom, folder, weights, batch, [])
                    with_drafts, tokens = seconds_per_token(
                        options.atom, folder, weights, batch, flags + largest)
                    pairs.append((without / with_drafts, without, with_drafts, tokens))
                gain = statistics.median(pair[0] for pair in pairs)
                _, without, with_drafts, tokens = sorted(pairs)[len(pairs) // 2]
                print(f"{name} batch {batch}: {gain:.2f}x ({without * 1e3:.1f} ms per token without, "
                      f"{with_drafts * 1e3:.1f} with, {tokens:.2f} tokens per step)", flush=True)


if __name__ == "__main__":
    main()
