#!/usr/bin/env python3
"""What drafts gain: the time of a token with them and without, in turns.

Weights are made up, so what they answer is no text. Shapes:
  mtp      12 dense layers with DeepSeek's attention and draft layer, on the CPU. Drafts count as
           accepted 1.47 of 3 on average, as the trained layer of a small model has it
           (src/runner/speculation_trained_test.cc).
  ngram    Qwen3-1.7B's, all weights zero, so that the same token comes again and again and there is
           something to look up; 2 of 4 drafts count as accepted.
  edit     Qwen3-1.7B's with a real text that repeats: a source file of this tree, and the same with
           two names changed as the answer. Drafts, four, are accepted where they are right about it
           (--forced-text). One request.
  NAME     of tools/write_shape.py --list, with its draft layer: qwen3-next-80b-fp8, deepseek-v3-6.
           For a GPU; 2 of 3 drafts count as accepted. At temperature 1, so that tokens are various
           ones, and so are the experts that they go to.

usage: measure.py ATOM [--device cpu|cuda] [--batches 1,4,16] [--rounds 3] [--shapes ngram,mtp,edit]
                  [--temperature T] [--flags=FLAGS]...

Each --flags is measured beside the others, as more options of the runs with drafts:
--flags="--draft-head-dtype fp8" --flags="--draft-head-dtype model".
"""
import argparse
import importlib.util
import json
import pathlib
import shlex
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

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


def mtp(accepted):
    return ["--method", "mtp", "--num-speculative-tokens", "3", "--forced-acceptance", accepted]


# At temperature 0 a model of made-up weights repeats a token, which goes to the same experts.
def with_temperature(name, options):
    default = "0" if name in SHAPES else "1"
    return ["--temperature", options.temperature or default]


# Of the text that "edit" has, in tokens of models/tldr-8m: where the answer begins, and how many of
# its tokens come.
EDIT_LENGTHS = "590x200"


def edit_text():
    source = (ROOT / "src/spec_decode/ngram_proposer.cc").read_text()
    edited = source.replace("best_length", "longest").replace("best_end", "behind")
    return ("Please call best_length longest, and best_end behind:\n" + source +
            "\nWith these names:\n" + edited)


SHAPES = {
    "edit": (QWEN3_1_7B, "random", ["--method", "ngram", "--num-speculative-tokens", "4"]),
    "ngram": (QWEN3_1_7B, "zero", ["--method", "ngram", "--num-speculative-tokens", "4",
                                   "--forced-acceptance", "2"]),
    "mtp": (DENSE_MTP, "random", mtp("1.47")),
}


def released_shapes():
    spec = importlib.util.spec_from_file_location("write_shape", ROOT / "tools/write_shape.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: (config, "random", mtp("2")) for name, config in module.SHAPES.items()}


def what_is_measured(name, options, batches, folder):
    if name == "edit":
        text = pathlib.Path(folder) / "text"
        text.write_text(edit_text())
        return ["--forced-text", text, "--tokenizer", ROOT / "models/tldr-8m", "--shapes",
                f"1x8x2,1x{EDIT_LENGTHS}", "--max-model-len", "1024"]
    lengths = "32x97" if options.device == "cpu" else "256x97"
    # A first run of the largest batch does not count: the first of anything loads kernels.
    shapes = [f"{batches[-1]}x{lengths.split('x')[0]}x2"]
    shapes += [f"{batch}x{lengths}" for batch in batches]
    return ["--difference", "--shapes", ",".join(shapes), "--max-model-len", "512"]


def measure(name, options, batches, folder, weights, flags):
    """Of each batch: seconds per token of a sequence, tokens of a verifying step, idle share."""
    on_cpu = options.device == "cpu"
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [options.atom, "bench", "latency", folder, "--load-dummy", weights, "--dtype",
                   "bfloat16", "--device", options.device, "--num-iters", "1",
                   "--warmup", "0", "--max-num-batched-tokens", "2048" if on_cpu else "8192",
                   "--max-num-seqs", batches[-1], "--output-json", file.name,
                   *with_temperature(name, options),
                   *what_is_measured(name, options, batches, folder), *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        results = json.load(open(file.name))["results"][1:]
    measured = {}
    for batch, result in zip(batches, results, strict=True):
        sample = result["samples"][0]
        verified = sample.get("num_verifications", 0)
        accepted = sum(sample["num_accepted_per_position"])
        measured[batch] = (sample["decode_step"], 1 + accepted / verified if verified else 1.0,
                           sample["device_idle_share"])
    return measured


def report(name, batch, pairs):
    """`pairs`: of each round, without and with drafts."""
    pairs = sorted(pairs, key=lambda pair: pair[0][0] / pair[1][0])
    gain = statistics.median(off[0] / on[0] for off, on in pairs)
    (without, _, _), (with_drafts, tokens, idle) = pairs[len(pairs) // 2]
    print(f"{name} batch {batch}: {gain:.2f}x ({without * 1e3:.2f} ms per token without, "
          f"{with_drafts * 1e3:.2f} with, {tokens:.2f} tokens per step, which takes "
          f"{with_drafts * tokens / without:.2f} of one without; device idle {idle:.1%})",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("atom")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--batches", default="1,4,16", help="in rising order")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", default="ngram,mtp")
    parser.add_argument("--temperature", help="other than the shape's own")
    parser.add_argument("--flags", action="append", help="of runs with drafts")
    options = parser.parse_args()
    shapes = SHAPES | released_shapes()
    variants = options.flags or [""]
    for name in options.shapes.split(","):
        config, weights, flags = shapes[name]
        batches = ["1"] if name == "edit" else options.batches.split(",")
        drafting = flags + ["--speculative-disable-by-batch-size", batches[-1]]
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
            runs = [[]] + [drafting + shlex.split(more) for more in variants]
            rounds = [[measure(name, options, batches, folder, weights, run) for run in runs]
                      for _ in range(options.rounds)]
        for batch in batches:
            for i, more in enumerate(variants):
                pairs = [(measured[0][batch], measured[1 + i][batch]) for measured in rounds]
                report(f"{name} {more}".strip(), batch, pairs)


if __name__ == "__main__":
    main()
