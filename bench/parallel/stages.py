#!/usr/bin/env python3
"""What two stages of a pipeline, a thread each, do beside one rank with one thread: output tokens
per second of 32 requests that run together, in turns. The layers are large enough that a step is
arithmetic and the head small enough that the stages are even. On a busy machine the ratio says how
much of the time both stages have work; the figures by themselves say nothing.

usage: stages.py ATOM [--stages 2] [--streams 32] [--output-len 64] [--rounds 5]
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

SHAPE = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 8192,
    "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 8,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64, "hidden_act": "silu",
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
    "tie_word_embeddings": False, "torch_dtype": "float32", "eos_token_id": 2}


def tokens_per_second(options, folder, stages):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [options.atom, "bench", "throughput", folder, "--load-dummy", "random", "--device",
             "cpu", "--num-prompts", str(options.streams), "--max-num-seqs", str(options.streams),
             "--input-len", "16", "--output-len", str(options.output_len), "--num-iters", "1",
             "--warmup", "0", "--max-model-len", "512", "--num-blocks", "2048",
             "-pp", str(stages), "--num-threads", str(stages), "--output-json", file.name],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        return json.load(open(file.name))["results"][0]["output_tokens_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("atom")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output-len", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(SHAPE))
        ratios = []
        for _ in range(options.rounds):
            one = tokens_per_second(options, folder, 1)
            several = tokens_per_second(options, folder, options.stages)
            ratios.append(several / one)
            print(f"{one:8.1f} tokens/s, {options.stages} stages {several:8.1f}: {ratios[-1]:.2f}",
                  flush=True)
        print(f"median of {options.rounds} ratios: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
