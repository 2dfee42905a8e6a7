"""Makes tiny.gguf, a model of random weights small enough to be in the tree, and tiny.txt: questions, and the answers of
`transformers` for that file. With a FILE.gguf makes only OUT.txt, the answers for it. Needs torch, transformers,
tokenizers, accelerate and gguf:

    python3 make_checks.py                      # tiny.gguf and tiny.txt
    python3 make_checks.py FILE.gguf smollm2.txt
"""
import json
import os
import sys

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from transformers import AutoModelForCausalLM, AutoTokenizer

QUESTIONS = ["What is the capital of France?", "Write a haiku about the sea.", "Explain gravity to a child in two sentences.",
             "List three uses of a paperclip.", "Translate 'good morning' into Spanish.", "What is 12 times 7?",
             "Name the planets of the solar system.", "Who wrote Hamlet?", "Give me a recipe for pancakes.", "Why is the sky blue?",
             "What is a prime number?", "Summarise the water cycle.", "How do I boil an egg?", "Tell me a joke about a cat.",
             "Which is larger, the sun or the moon?", "Write a polite email that asks for a day off.", "What does a compiler do?",
             "Is 97 a prime number?", "Name four rivers in Europe.", "How many legs do two spiders and a bee have?"]
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
WIDTH, HEADS, KV_HEADS, MLP, LAYERS = 64, 4, 2, 128, 2


def make_tiny(path):
    folder = os.path.dirname(os.path.abspath(__file__))
    plain = json.load(open(f"{folder}/../../tests/frontend/tokenizers/digits.json"))
    names = [name for name, _ in sorted(plain["model"]["vocab"].items(), key=lambda item: item[1])] + ["<|im_start|>", "<|im_end|>"]
    special = {token["id"] for token in plain["added_tokens"]} | {len(names) - 2, len(names) - 1}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(names))
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([name.encode() for name in names])
    writer.add_token_types([3 if i in special else 1 for i in range(len(names))])
    writer.add_token_merges([" ".join(pair) for pair in plain["model"]["merges"]])
    writer.add_bos_token_id(len(names) - 2)
    writer.add_eos_token_id(len(names) - 1)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    rng = np.random.default_rng(3)

    def add(name, rows, columns, kind, scale):
        values = rng.normal(0, scale, (rows, columns)).astype(np.float32)
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def add_norm(name):
        writer.add_tensor(name, (1 + rng.normal(0, 0.1, WIDTH)).astype(np.float32))

    add("token_embd.weight", len(names), WIDTH, Type.Q8_0, 1)
    head = WIDTH // HEADS
    for i in range(LAYERS):
        for part, rows, columns, kind in (("attn_q", WIDTH, WIDTH, Type.Q4_1), ("attn_k", KV_HEADS * head, WIDTH, Type.Q5_0),
                                          ("attn_v", KV_HEADS * head, WIDTH, Type.F16), ("attn_output", WIDTH, WIDTH, Type.Q4_0),
                                          ("ffn_gate", MLP, WIDTH, Type.Q5_1), ("ffn_up", MLP, WIDTH, Type.Q4_1),
                                          ("ffn_down", WIDTH, MLP, Type.Q8_0)):
            add(f"blk.{i}.{part}.weight", rows, columns, kind, 0.3)
        add_norm(f"blk.{i}.attn_norm.weight")
        add_norm(f"blk.{i}.ffn_norm.weight")
    add_norm("output_norm.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_answers(path, out, questions):
    folder, name = os.path.split(os.path.abspath(path))
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    with open(out, "w") as file:
        for question in questions:
            text = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
            ids = tokenizer(text, return_tensors="pt").input_ids
            with torch.no_grad():
                all_ids = model.generate(ids, max_new_tokens=64, do_sample=False, temperature=None, top_p=None, eos_token_id=end)
                top = torch.topk(model(all_ids).logits[0, ids.shape[1] - 1:-1], 2, -1).values
            answer = all_ids[0, ids.shape[1]:].tolist()
            answer = answer[:answer.index(end)] if end in answer else answer
            print(f"{question}: {ids.shape[1]} + {len(answer)} tokens; least lead of a token {float((top[:, 0] - top[:, 1]).min()):.3g}")
            file.write(f"{question}\n{' '.join(map(str, answer))}\n")


if len(sys.argv) > 1:
    write_answers(sys.argv[1], sys.argv[2], QUESTIONS)
else:
    make_tiny("tiny.gguf")
    write_answers("tiny.gguf", "tiny.txt", QUESTIONS[:3])
