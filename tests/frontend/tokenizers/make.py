"""Makes tokenizers of every kind that Braze reads, small ones trained on this tree's own texts, and the ids that
the package tokenizers (0.23) gives for strings in many scripts:

    python3 make.py FOLDER COUNT [FILE...]     # FOLDER/NAME.json, FOLDER/NAME.ids, FOLDER/strings.json; two also as .gguf

FILEs are tokenizers of models: a tokenizer.json, or a .gguf whose pre-tokenizer is smollm. FOLDER has a link to each, and its
ids. FOLDER/about.txt says what the strings are. tokenizer-cases compares the ids with Braze's: what `make.py . 300` made is
committed, and run.sh makes and compares 10,000.
"""
import collections
import glob
import json
import os
import random
import sys
import unicodedata

import gguf
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

WORDS = """hello World don't I'm we've it's 12345 3.14 foo_bar C++ HTTP/1.1 user@example.com naïve café Straße ÅNGSTRÖM İstanbul ǅ ﬁne ½ ² Ⅷ
你好 世界 日本語 カタカナ ひらがな 한국어 Привет мир Ёлка Ελληνικά ΣΊΣΥΦΟΣ שלום עולם مرحبا بالعالم हिन्दी नमस्ते বাংলা தமிழ் తెలుగు ไทย สวัสดี ລາວ
ქართული Հայերեն አማርኛ ខ្មែរ မြန်မာ ᚠᚢᚦ 😀 👩‍👩‍👧 🏳️‍🌈 e\u0301 a\u0308\u0323 \u200b \u00ad \ufeff \u180e … — “quoted” «» €5 £ ¥100 °C x²+y² ∑
∀x∈ℝ → <b> </b> <|end|> <s> [CLS] [MASK] 's 'LL 're ' '' {} (); != #include /usr/bin 0x1F 1e-5 1,000,000 २३४ ٤٥٦ ①② 𝔘𝔫𝔦 𝟘𝟙 𐍈 ß ẞ ΐ \u0130 ſ""".split()
BETWEEN = [" ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "", "\u00a0", "\u3000", " \n ", "\u2003", "-", ", ", ". "]
RANGES = [(0x20, 0x7e), (0xa0, 0x17f), (0x370, 0x3ff), (0x400, 0x4ff), (0x590, 0x5f4), (0x600, 0x6ff), (0x900, 0x97f), (0xe00, 0xe5b),
          (0x1100, 0x11ff), (0x1e00, 0x1fff), (0x2000, 0x206f), (0x20a0, 0x20bf), (0x2100, 0x22ff), (0x3000, 0x30ff), (0x4e00, 0x9fa5),
          (0xac00, 0xd7a3), (0xf900, 0xfa6d), (0xff00, 0xffef), (0x1f300, 0x1f64f), (0x1d400, 0x1d7ff), (0x20000, 0x2a6d6)]


def strings(count):
    rng, out = random.Random(7), set()
    while len(out) < count:
        kind = rng.random()
        if kind < 0.7:
            text = "".join(rng.choice(WORDS) + rng.choice(BETWEEN) for _ in range(rng.randint(1, 9)))
            text = text.upper() if rng.random() < 0.2 else text
            text = rng.choice(BETWEEN) + text if rng.random() < 0.3 else text
        else:
            ranges = [rng.choice(RANGES)] if kind < 0.9 else RANGES
            text = "".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(1, 20)))
        # U+061D became punctuation with Unicode 14, which the package does not follow everywhere.
        text = "".join(c for c in text if unicodedata.category(c) not in ("Cs", "Cn") and c not in "\0\u061d")
        if text:
            out.add(text)
    out = sorted(out)
    rng.shuffle(out)
    return out


def kinds():
    """name -> (tokenizer without tokens, trainer)"""
    special = ["<unk>", "<s>", "<|end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()

    gpt2 = Tokenizer(models.BPE())
    gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    gpt2.decoder = decoders.ByteLevel()
    yield "bytes", gpt2, trainers.BpeTrainer(vocab_size=700, special_tokens=special, initial_alphabet=alphabet, show_progress=False)

    digits = Tokenizer(models.BPE())
    digits.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    digits.decoder = decoders.ByteLevel()
    yield "digits", digits, trainers.BpeTrainer(vocab_size=700, special_tokens=special, initial_alphabet=alphabet, show_progress=False)

    split = Tokenizer(models.BPE(ignore_merges=True))
    split.normalizer = normalizers.NFC()
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    split.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    split.decoder = decoders.ByteLevel()
    yield "split", split, trainers.BpeTrainer(vocab_size=700, special_tokens=special, initial_alphabet=alphabet, show_progress=False)

    pieces = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    pieces.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    pieces.decoder = decoders.Sequence([
        decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokens = special + [f"<0x{i:02X}>" for i in range(256)]
    yield "pieces", pieces, trainers.BpeTrainer(vocab_size=900, special_tokens=tokens, limit_alphabet=200, show_progress=False)

    blanks = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    blanks.normalizer = normalizers.NFKC()
    blanks.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    blanks.decoder = decoders.Metaspace(prepend_scheme="first")
    yield "blanks", blanks, trainers.BpeTrainer(vocab_size=600, special_tokens=special, limit_alphabet=200, show_progress=False)

    words = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    words.normalizer = normalizers.BertNormalizer()
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.decoder = decoders.WordPiece()
    yield "words", words, trainers.WordPieceTrainer(
        vocab_size=900, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], limit_alphabet=300, show_progress=False)


def with_all_pairs(tokenizer):
    """The tokenizer with each way of making a token of two others, in the order of the tokens' numbers: what scores mean."""
    plain = json.loads(tokenizer.to_str())
    vocabulary, special = plain["model"]["vocab"], {token["content"] for token in plain["added_tokens"]}
    pairs = []
    for token, number in vocabulary.items():
        pairs += [(-number, len(token[:i].encode()), len(token[i:].encode()), [token[:i], token[i:]]) for i in range(1, len(token))
                  if token not in special and token[:i] in vocabulary and token[i:] in vocabulary]
    plain["model"]["merges"] = [pair[3] for pair in sorted(pairs, key=lambda pair: pair[:3], reverse=True)]
    plain["added_tokens"] = plain["added_tokens"][:3]  # bytes are tokens, but not to be found in a text by their names
    return Tokenizer.from_str(json.dumps(plain))


def write_gguf(path, tokenizer, model):
    plain = json.loads(tokenizer.to_str())
    names = [name.encode() for name, _ in sorted(plain["model"]["vocab"].items(), key=lambda item: item[1])]
    special = {token["id"] for token in plain["added_tokens"]}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(names)
    writer.add_token_types([3 if i in special else 1 for i in range(len(names))])
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    if model == "gpt2":
        writer.add_tokenizer_pre("smollm")
        writer.add_token_merges([" ".join(pair) for pair in plain["model"]["merges"]])
    else:
        writer.add_token_scores([-float(i) for i in range(len(names))])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def of_gguf(path):
    """The package's tokenizer of the tokens and merges in a .gguf. Its pre-tokenizer, which the file only names, is the one
    in the tokenizer.json of SmolLM2."""
    fields = gguf.GGUFReader(path).fields
    if fields["tokenizer.ggml.pre"].contents() != "smollm":
        sys.exit(f"{path}: its pre-tokenizer is not smollm")
    names, kinds_of = fields["tokenizer.ggml.tokens"].contents(), fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name, kind in zip(names, kinds_of) if kind == 3])
    return tokenizer


def about(texts):
    letters = (c for text in texts for c in text if unicodedata.category(c)[0] == "L")
    scripts = collections.Counter(unicodedata.name(c, "OTHER").split()[0].split("-")[0].lower() for c in letters)
    common = [name for name, number in scripts.most_common() if number >= 100]
    return (f"The {len(texts):,} strings have {sum(map(len, texts)):,} characters. The first words of the names of their letters, if 100 "
            f"letters or more have them, are {', '.join(common)}. "
            f"The ids are compared with those of the package tokenizers {tokenizers.__version__}.\n")


def write_ids(name, tokenizer):
    with open(f"{folder}/{name}.ids", "w") as file:
        for text in texts:
            file.write(" ".join(map(str, tokenizer.encode(text).ids)) + "\n")


folder, count, files = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
texts = strings(count)
json.dump(texts, open(f"{folder}/strings.json", "w"), ensure_ascii=False, indent=0)
if count > 300:
    open(f"{folder}/about.txt", "w").write(about(texts))
root = __file__.rsplit("/tests/", 1)[0]
corpus = [open(name).read() for name in sorted(glob.glob(f"{root}/docs/**/*.md", recursive=True))]
for name, tokenizer, trainer in kinds():
    tokenizer.train_from_iterator(corpus + strings(300), trainer)
    if name == "pieces":
        tokenizer = with_all_pairs(tokenizer)
        write_gguf(f"{folder}/{name}.gguf", tokenizer, "llama")
    if name == "digits":
        write_gguf(f"{folder}/{name}.gguf", tokenizer, "gpt2")
    if name == "words":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
        tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True)])
    tokenizer.save(f"{folder}/{name}.json", pretty=False)
    write_ids(name, Tokenizer.from_file(f"{folder}/{name}.json"))
for path in files:
    # A tokenizer.json has the name of its package, a .gguf its own.
    name, kind = (os.path.basename(path)[:-5], "gguf") if path.endswith(".gguf") else (path.split("/")[-4], "json")
    os.symlink(os.path.abspath(path), f"{folder}/{name}.{kind}")
    tokenizer = of_gguf(path) if kind == "gguf" else Tokenizer.from_file(path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    write_ids(name, tokenizer)
