#!/usr/bin/env python3
"""Writes weights for the config.json of a Llama, Qwen3 or Qwen3-MoE model: random bfloat16, or FP8
with scales of blocks where the file says so, of the size of real ones, in safetensors shards with
an index, as a model hub has them. For measuring how fast a checkpoint loads; the standard library
alone, some 2 GB/s a processor.
usage: tools/write_dummy_checkpoint.py FOLDER [SHARD_GIB]"""

import json
import math
import multiprocessing
import pathlib
import random
import sys

ONE = bytes([0x80, 0x3f])
BLOCK_SIZE = 1 << 25
SCALE = bytes([0, 0, 0x80, 0x3c])  # float32, 2^-6
ELEMENT_SIZES = {"BF16": 2, "F8_E4M3": 1, "F32": 4}


def linear(config, name, rows, columns):
    """A weight, and its scales where linears have blocks of FP8."""
    quantization = config.get("quantization_config")
    if not quantization:
        return [(name + ".weight", "BF16", [rows, columns])]
    block_rows, block_columns = quantization["weight_block_size"]
    blocks = [math.ceil(rows / block_rows), math.ceil(columns / block_columns)]
    return [(name + ".weight", "F8_E4M3", [rows, columns]),
            (name + ".weight_scale_inv", "F32", blocks)]


def gated_mlp(config, prefix, inner):
    hidden = config["hidden_size"]
    return (linear(config, prefix + "down_proj", hidden, inner) +
            linear(config, prefix + "gate_proj", inner, hidden) +
            linear(config, prefix + "up_proj", inner, hidden))


def mlp_of(config, prefix):
    if config["model_type"] != "qwen3_moe":
        return gated_mlp(config, prefix, config["intermediate_size"])
    tensors = []
    for expert in range(config["num_experts"]):
        tensors += gated_mlp(config, f"{prefix}experts.{expert}.", config["moe_intermediate_size"])
    return tensors + [(prefix + "gate.weight", "BF16",
                       [config["num_experts"], config["hidden_size"]])]


def attention_of(config, prefix):
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads", heads)
    size = config.get("head_dim") or hidden // heads
    tensors = []
    if config["model_type"].startswith("qwen3"):
        tensors += [(prefix + f"{name}_norm.weight", "BF16", [size]) for name in "qk"]
    return (tensors + linear(config, prefix + "k_proj", kv_heads * size, hidden) +
            linear(config, prefix + "o_proj", hidden, heads * size) +
            linear(config, prefix + "q_proj", heads * size, hidden) +
            linear(config, prefix + "v_proj", kv_heads * size, hidden))


def tensors_of(config):
    """(name, type, shape) in the order of a published checkpoint."""
    hidden = config["hidden_size"]
    table = [config["vocab_size"], hidden]
    tensors = [("model.embed_tokens.weight", "BF16", table)]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        tensors.append((prefix + "input_layernorm.weight", "BF16", [hidden]))
        tensors += mlp_of(config, prefix + "mlp.")
        tensors.append((prefix + "post_attention_layernorm.weight", "BF16", [hidden]))
        tensors += attention_of(config, prefix + "self_attn.")
    tensors.append(("model.norm.weight", "BF16", [hidden]))
    if not config.get("tie_word_embeddings"):
        tensors.append(("lm_head.weight", "BF16", table))
    return tensors


def size_of(tensor):
    _, dtype, shape = tensor
    return math.prod(shape) * ELEMENT_SIZES[dtype]


def random_block(dtype):
    """bfloat16 of either sign between 2^-7 and 2^-6, or FP8 between 1/2 and 1."""
    source = random.Random(1)
    if dtype == "F8_E4M3":
        codes = bytes(0x30 | (byte & 0x87) for byte in range(256))
        return memoryview(source.randbytes(BLOCK_SIZE).translate(codes))
    block = bytearray(BLOCK_SIZE)
    block[0::2] = source.randbytes(BLOCK_SIZE // 2)
    signs = bytes(0xbc if byte & 1 else 0x3c for byte in range(256))
    block[1::2] = source.randbytes(BLOCK_SIZE // 2).translate(signs)
    return memoryview(bytes(block))


def split(tensors, limit):
    shards, size = [[]], 0
    for tensor in tensors:
        if size > 0 and size + size_of(tensor) > limit:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += size_of(tensor)
    return shards


def write_shard(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for tensor in tensors:
        name, dtype, shape = tensor
        end = offset + size_of(tensor)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    blocks = {dtype: random_block(dtype) for dtype in {dtype for _, dtype, _ in tensors} - {"F32"}}
    with open(path, "wb", buffering=0) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            _, dtype, shape = tensor
            left = size_of(tensor)
            if dtype == "F32" or len(shape) == 1:
                file.write((SCALE if dtype == "F32" else ONE) * math.prod(shape))
                continue
            while left > 0:
                left -= file.write(blocks[dtype][:min(left, BLOCK_SIZE)])


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    limit = int(float(sys.argv[2] if len(sys.argv) == 3 else 4.6) * 2**30)
    shards = split(tensors_of(json.loads((folder / "config.json").read_text())), limit)
    names = [f"model-{number:05}-of-{len(shards):05}.safetensors"
             for number in range(1, len(shards) + 1)]
    with multiprocessing.Pool(min(len(shards), 8)) as pool:
        pool.starmap(write_shard, [(folder / name, tensors)
                                   for name, tensors in zip(names, shards)])
    weight_map = {tensor[0]: name for name, tensors in zip(names, shards) for tensor in tensors}
    total = sum(size_of(tensor) for shard in shards for tensor in shard)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    print(f"{total} bytes in {len(shards)} files")


if __name__ == "__main__":
    main()
