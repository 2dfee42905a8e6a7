"""Networks of PyTorch whose exports Braze must run: a function for each, which gives the module and what it is called with.

Weights are random: what an export says does not depend on them. Language models are tiny; vision models have their own sizes, up to 100
million parameters.
"""
import unittest.mock

import torch

SEED = 1


class Chosen(torch.nn.Module):
    """The results of a module that gives more, or gives them in a structure of its own."""

    def __init__(self, module, *names):
        super().__init__()
        self.module, self.names = module, names

    def forward(self, **inputs):
        result = self.module(**inputs)
        return tuple(result[name] if isinstance(result, dict) else getattr(result, name) for name in self.names)


def tokens(batch, length, count):
    return torch.randint(0, count, (batch, length))


def image(size, batch=1):
    return {"x": torch.randn(batch, 3, size, size)}


# ---- Language and tables --------------------------------------------------------------------------------------------


def bert(**settings):
    from transformers import BertConfig, BertModel

    config = BertConfig(**({"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
                            "vocab_size": 100} | settings), attn_implementation="eager")
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, 7:] = 0
    return Chosen(BertModel(config), "last_hidden_state", "pooler_output"), {"input_ids": tokens(2, 12, 100), "attention_mask": mask}


def gpt2(**settings):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(**({"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 100} | settings), use_cache=False,
                        attn_implementation="eager")
    return Chosen(GPT2LMHeadModel(config), "logits"), {"input_ids": tokens(2, 12, 100)}


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
                         vocab_size=100, use_cache=False, attn_implementation="eager")
    return Chosen(LlamaForCausalLM(config), "logits"), {"input_ids": tokens(2, 12, 100)}


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=100, use_cache=False, attn_implementation="eager")
    return Chosen(T5ForConditionalGeneration(config), "logits"), {"input_ids": tokens(2, 12, 100), "decoder_input_ids": tokens(2, 5, 100)}


def vit():
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8,
                       attn_implementation="eager")
    return Chosen(ViTModel(config), "last_hidden_state"), {"pixel_values": torch.randn(2, 3, 32, 32)}


class Mixer(torch.nn.Module):
    """Patches as a product, then products over patches and over channels in turn."""

    class Layer(torch.nn.Module):
        def __init__(self, count, width):
            super().__init__()
            self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
            self.mixes = torch.nn.ModuleList(
                torch.nn.Sequential(torch.nn.Linear(n, 2 * n), torch.nn.GELU(), torch.nn.Linear(2 * n, n)) for n in (count, width))

        def forward(self, x):
            x = x + self.mixes[0](self.norms[0](x).transpose(1, 2)).transpose(1, 2)
            return x + self.mixes[1](self.norms[1](x))

    def __init__(self, size=32, patch=8, width=32):
        super().__init__()
        self.patch = patch
        self.embed = torch.nn.Linear(3 * patch * patch, width)
        self.layers = torch.nn.Sequential(*(self.Layer((size // patch) ** 2, width) for _ in range(2)))
        self.head = torch.nn.Linear(width, 10)

    def forward(self, x):
        n, c, h, w = x.shape
        p = self.patch
        x = x.reshape(n, c, h // p, p, w // p, p).permute(0, 2, 4, 1, 3, 5).reshape(n, -1, c * p * p)
        return self.head(self.layers(self.embed(x)).mean(1))


class Dlrm(torch.nn.Module):
    """Dense features and bags of a table each, and the products of all pairs."""

    def __init__(self, tables=4, rows=50, width=16):
        super().__init__()
        self.tables = torch.nn.ModuleList(torch.nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = torch.nn.Sequential(torch.nn.Linear(13, 32), torch.nn.ReLU(), torch.nn.Linear(32, width), torch.nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = torch.nn.Sequential(torch.nn.Linear(width + pairs, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1), torch.nn.Sigmoid())
        left, right = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("left", left)
        self.register_buffer("right", right)

    def forward(self, dense, ids):
        x = self.bottom(dense)
        parts = torch.stack([x] + [table(ids[:, i]).sum(1) for i, table in enumerate(self.tables)], 1)
        products = parts @ parts.transpose(1, 2)
        return self.top(torch.cat([x, products[:, self.left, self.right]], 1))


SMALL = {
    "bert": bert, "gpt2": gpt2, "llama": llama, "t5": t5, "vit": vit,
    "mixer": lambda: (Mixer(), image(32, 2)),
    "dlrm": lambda: (Dlrm(), {"dense": torch.randn(5, 13), "ids": torch.randint(0, 50, (5, 4, 3))}),
}

# ---- Vision ---------------------------------------------------------------------------------------------------------

TIMM = """cait_xxs24_224 coatnet_nano_rw_224 convmixer_768_32 crossvit_tiny_240 deit_tiny_patch16_224 dpn68 edgenext_xx_small efficientformer_l1
eva02_tiny_patch14_224 fastvit_t8 ghostnet_100 gmlp_s16_224 hrnet_w18_small levit_128s mixer_s32_224 mobileone_s0 mobilevit_xxs pit_ti_224
poolformer_s12 pvt_v2_b0 repvgg_a0 res2net50_26w_4s resmlp_12_224 rexnet_100 sequencer2d_s tnt_s_patch16_224
visformer_tiny xcit_nano_12_p8_224""".split()


MOST_PARAMETERS = 100e6


class Called(torch.nn.Module):
    """A module whose input has a name of its own, called with `x`."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


def from_torchvision(name):
    import torchvision

    transform = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    size = getattr(transform, "crop_size", [128])  # without: of segmentation and optical flow
    settings = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    if is_of("segmentation", name):
        settings = {"weights_backbone": None}
    module = torchvision.models.get_model(name, weights=None, **settings)
    if is_of("segmentation", name):
        return Chosen(Called(module), "out"), image(size[0])
    if is_of("optical_flow", name):
        return module, {"image1": image(size[0])["x"], "image2": image(size[0])["x"]}
    if is_of("video", name):
        return module, {"x": torch.randn(1, 3, 16, size[0], size[0])}
    return module, image(size[0])


def is_of(kind, name):
    import torchvision

    return name in torchvision.models.list_models(module=getattr(torchvision.models, kind))


# Classification, segmentation, video and optical flow. What detects objects is left out: the data decide how many there are. So is
# what is quantized, which PyTorch does not export.
def torchvision_suite():
    from torchvision import models
    from torchvision.models import optical_flow, segmentation, video

    names = sorted(models.list_models(module=models), key=lambda name: (name.rstrip("0123456789"), len(name), name))
    for kind in (segmentation, video, optical_flow):
        names += models.list_models(module=kind)
    parameters = {name: models.get_model_weights(name).DEFAULT.meta["num_params"] for name in names}
    return {name: (lambda name=name: from_torchvision(name)) for name in names if parameters[name] <= MOST_PARAMETERS}


def from_timm(name):
    import timm

    module = timm.create_model(name, pretrained=False)
    return module, image(module.default_cfg["input_size"][-1])


def timm_suite():
    return {name: (lambda name=name: from_timm(name)) for name in TIMM}


# What makes the networks of a suite, by name.
SUITES = {"small": lambda: SMALL, "torchvision": torchvision_suite, "timm": timm_suite}
MODEL = "model.onnx"


# A parameter of equal elements (a head of zeros, a scale of 1e-5) would hide what is computed before it.
def vary(module):
    for p in module.parameters():
        if p.numel() > 1 and (p == p.flatten()[0]).all():
            p.data = 0.1 * torch.randn(p.shape) + (p == 1)
    for name, buffer in module.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(0, 0.1)
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)


def made(network):
    torch.manual_seed(SEED)
    module, inputs = network()
    vary(module)
    return module.eval(), inputs


def export(module, inputs, path):
    positional = list(inputs) == ["x"] and not isinstance(module, Chosen)
    torch.onnx.export(module, tuple(inputs.values()) if positional else (), path, kwargs=None if positional else inputs,
                      dynamo=True, external_data=False, verbose=False)


def results_of(module, inputs):
    with torch.no_grad():
        out = module(**inputs) if isinstance(module, Chosen) else module(*inputs.values())
    return [x.numpy() for x in (out if isinstance(out, (tuple, list)) else (out,))]


def prepare(network, folder):
    """Exports; what goes in by name, what comes out in f32 and in f64, and the count of parameters."""
    import onnx

    module, inputs = made(network)
    parameters = sum(p.numel() for p in module.parameters())
    export(module, inputs, folder / MODEL)
    single = results_of(module, inputs)
    # What a module casts to f32, or makes without a type, is f64 here.
    torch.set_default_dtype(torch.float64)
    try:
        with (unittest.mock.patch.multiple(torch, float32=torch.float64, float=torch.float64),
              unittest.mock.patch.object(torch.Tensor, "float", torch.Tensor.double)):
            exact = results_of(module.double(), {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()})
    finally:
        torch.set_default_dtype(torch.float32)
    names = [output.name for output in onnx.load(folder / MODEL).graph.output]
    return {name: value.numpy() for name, value in inputs.items()}, dict(zip(names, single)), dict(zip(names, exact)), parameters
