#!/usr/bin/env python3
"""Writes weights for the config.json of a dense Llama or Qwen3 model: random bfloat16 of the size
of real ones, in safetensors shards with an index, as a model hub has them. For measuring how fast
a checkpoint loads; the standard library alone, some 2 GB/s.
usage: tools/write_dummy_checkpoint.py FOLDER [SHARD_GIB]"""

import json
import pathlib
import random
import sys

NORM = bytes([0x80, 0x3f])  # 1
BLOCK_SIZE = 1 << 25


def tensors_of(config):
    """(name, shape) in the order of a published checkpoint."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads", heads)
    size = config.get("head_dim") or hidden // heads
    tensors = [("model.embed_tokens.weight", [config["vocab_size"], hidden])]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        tensors += [(prefix + "input_layernorm.weight", [hidden]),
                    (prefix + "mlp.down_proj.weight", [hidden, inner]),
                    (prefix + "mlp.gate_proj.weight", [inner, hidden]),
                    (prefix + "mlp.up_proj.weight", [inner, hidden]),
                    (prefix + "post_attention_layernorm.weight", [hidden])]
        if config["model_type"] == "qwen3":
            tensors += [(prefix + f"self_attn.{name}_norm.weight", [size]) for name in "qk"]
        tensors += [(prefix + "self_attn.k_proj.weight", [kv_heads * size, hidden]),
                    (prefix + "self_attn.o_proj.weight", [hidden, heads * size]),
                    (prefix + "self_attn.q_proj.weight", [heads * size, hidden]),
                    (prefix + "self_attn.v_proj.weight", [kv_heads * size, hidden])]
    tensors.append(("model.norm.weight", [hidden]))
    if not config.get("tie_word_embeddings"):
        tensors.append(("lm_head.weight", [config["vocab_size"], hidden]))
    return tensors


def size_of(shape):
    count = 2
    for extent in shape:
        count *= extent
    return count


def random_block():
    """bfloat16 of either sign between 2^-7 and 2^-6."""
    block = bytearray(BLOCK_SIZE)
    source = random.Random(1)
    block[0::2] = source.randbytes(BLOCK_SIZE // 2)
    signs = bytes(0xbc if byte & 1 else 0x3c for byte in range(256))
    block[1::2] = source.randbytes(BLOCK_SIZE // 2).translate(signs)
    return memoryview(bytes(block))


def split(tensors, limit):
    shards, size = [[]], 0
    for name, shape in tensors:
        if size > 0 and size + size_of(shape) > limit:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += size_of(shape)
    return shards


def write_shard(path, tensors, block):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        end = offset + size_of(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=0) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, shape in tensors:
            left = size_of(shape)
            if len(shape) == 1:
                file.write(NORM * (left // 2))
                continue
            while left > 0:
                left -= file.write(block[:min(left, BLOCK_SIZE)])


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    limit = int(float(sys.argv[2] if len(sys.argv) == 3 else 4.6) * 2**30)
    shards = split(tensors_of(json.loads((folder / "config.json").read_text())), limit)
    block = random_block()
    weight_map = {}
    for number, tensors in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_shard(folder / name, tensors, block)
        weight_map.update({tensor: name for tensor, _ in tensors})
    total = sum(size_of(shape) for shard in shards for _, shape in shard)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    print(f"{total} bytes in {len(shards)} files")


if __name__ == "__main__":
    main()
