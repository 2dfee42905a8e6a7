"""Makes tiny/, a BERT of random weights, and for it or another one the file that embed_text --check reads: embeddings in
f64 by transformers, pooled as sentence-transformers does, and the errors of PyTorch's own f32. Needs torch and transformers:

    python3 make_checks.py tiny tiny.txt                # makes tiny/ first if it is not there
    python3 make_checks.py FOLDER_OF_MINILM minilm.txt
"""
import os
import shutil
import sys

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel

SENTENCES = ["A cat sits on the mat.", "A feline rests upon a rug.", "The stock market fell sharply today.",
             "How do I bake sourdough bread?", "Caf\u00e9 na\u00efve \u4f60\u597d, \u041f\u0440\u0438\u0432\u0435\u0442!", "x", "The quick brown fox jumps over the lazy dog." * 4,
             "Kernels are fused by the estimated time."]


def make_tiny(folder):
    os.makedirs(folder)
    here = os.path.dirname(os.path.abspath(__file__))
    shutil.copy(f"{here}/../../tests/frontend/tokenizers/words.json", f"{folder}/tokenizer.json")
    count = Tokenizer.from_file(f"{folder}/tokenizer.json").get_vocab_size()
    torch.manual_seed(1)
    model = BertModel(BertConfig(vocab_size=count, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                                 max_position_embeddings=128, initializer_range=0.3), add_pooling_layer=False)
    model.half().save_pretrained(folder)


folder, out = sys.argv[1:]
if not os.path.exists(folder):
    make_tiny(folder)
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
tokenizer.no_truncation()
tokenizer.no_padding()
tokenizer.encode_special_tokens = True


def embed(dtype):
    model = BertModel.from_pretrained(folder, dtype=dtype, add_pooling_layer=False, attn_implementation="eager").eval()
    result = []
    for sentence in SENTENCES:
        ids = torch.tensor([tokenizer.encode(sentence).ids])
        with torch.no_grad():
            mean = model(ids).last_hidden_state[0].mean(0)
        result.append((mean / mean.norm()).double().numpy())
    return np.array(result)


exact, single = embed(torch.float64), embed(torch.float32)
errors = np.abs(exact - single)
with open(out, "w") as file:
    file.write(f"{errors.max():.4g} {np.sqrt((errors ** 2).mean()):.4g} PyTorch\n")
    for sentence, numbers in zip(SENTENCES, exact):
        file.write(sentence + "\n" + " ".join(f"{x:.10g}" for x in numbers) + "\n")
