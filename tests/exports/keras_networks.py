"""Networks of Keras whose programs by JAX Braze must run: each in inference, and the gradients of a loss in training.

Weights are random. What is in keras.applications has small images; the others are small.
"""
import os
import re
import unittest.mock

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"  # else some take minutes to compile
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import Input, Sequential, layers, ops  # noqa: E402
from keras.src.backend.common import dtypes  # noqa: E402

SEED, BATCH, TOKENS, CLASSES = 1, 2, 50, 10
MODEL = "model.mlir"


def of(shape, *chain):
    return Sequential([Input(shape), *chain])


def of_tokens(length, *chain):
    return Sequential([Input((length,), dtype="int32"), layers.Embedding(TOKENS, 16), *chain, layers.Dense(CLASSES)])


def conv(count, size=3, **settings):
    return layers.Conv2D(count, size, padding="same", activation="relu", **settings)


def autoencoder():
    return of((16, 16, 1), conv(8, strides=2), conv(4, strides=2), layers.Conv2DTranspose(8, 3, strides=2, padding="same", activation="relu"),
              layers.Conv2DTranspose(1, 3, strides=2, padding="same", activation="sigmoid"))


def unet():
    x = start = Input((16, 16, 3))
    kept = []
    for count in (8, 16):
        x = conv(count)(x)
        kept.append(x)
        x = layers.MaxPooling2D()(layers.BatchNormalization()(x))
    x = conv(32)(x)
    for count in (16, 8):
        x = conv(count)(layers.Concatenate()([layers.UpSampling2D()(x), kept.pop()]))
    return keras.Model(start, layers.Conv2D(2, 1)(x))


class Sample(layers.Layer):
    def __init__(self):
        super().__init__()
        self.seed = keras.random.SeedGenerator(SEED)

    def call(self, mean, spread):
        # Drawn in f32, so that the same numbers are drawn in f64.
        noise = keras.random.uniform(ops.shape(mean), -1, 1, dtype="float32", seed=self.seed)
        return mean + ops.exp(spread) * ops.cast(noise, mean.dtype)


def variational():
    start = Input((8, 8, 1))
    x = layers.Dense(32, activation="relu")(layers.Flatten()(conv(8, strides=2)(start)))
    x = Sample()(layers.Dense(4)(x), layers.Dense(4)(x))
    x = layers.Reshape((4, 4, 4))(layers.Dense(64, activation="relu")(x))
    return keras.Model(start, layers.Conv2DTranspose(1, 3, strides=2, padding="same", activation="sigmoid")(x))


def encoder():
    x = layers.Embedding(TOKENS, 16)(start := Input((12,), dtype="int32"))
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(layers.MultiHeadAttention(4, 4)(x, x)))
        x = layers.LayerNormalization()(x + layers.Dense(16)(layers.Dense(32, activation="gelu")(x)))
    return keras.Model(start, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(x)))


def decoder():
    x = layers.Embedding(TOKENS, 16)(start := Input((12,), dtype="int32"))
    for _ in range(2):
        y = layers.RMSNormalization()(x)
        x = x + layers.GroupQueryAttention(4, 4, 2)(y, y, use_causal_mask=True)
        y = layers.RMSNormalization()(x)
        x = x + layers.Dense(16)(layers.Dense(32, activation="silu")(y) * layers.Dense(32)(y))
    return keras.Model(start, layers.Dense(TOKENS)(x))


def mixer():
    x = layers.Reshape((16, 16))(layers.Conv2D(16, 4, strides=4)(start := Input((16, 16, 3))))
    for _ in range(2):
        y = layers.Permute((2, 1))(layers.LayerNormalization()(x))
        x = x + layers.Permute((2, 1))(layers.Dense(16)(layers.Dense(32, activation="gelu")(y)))
        x = x + layers.Dense(16)(layers.Dense(32, activation="gelu")(layers.LayerNormalization()(x)))
    return keras.Model(start, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(x)))


def tables():
    ids = Input((4,), dtype="int32")
    dense = Input((13,))
    parts = [layers.Embedding(TOKENS, 8)(ids[:, i]) for i in range(4)] + [layers.Dense(8, activation="relu")(dense)]
    stacked = ops.stack(parts, 1)
    products = layers.Flatten()(ops.matmul(stacked, ops.transpose(stacked, (0, 2, 1))))
    return keras.Model([ids, dense], layers.Dense(1, activation="sigmoid")(layers.Concatenate()([products, parts[-1]])))


def mobile():
    return of((16, 16, 3), layers.SeparableConv2D(8, 3), layers.DepthwiseConv2D(3), layers.LeakyReLU(), layers.GroupNormalization(4),
              layers.AveragePooling2D(2), layers.Flatten(), layers.Dense(CLASSES))


def application(name, size=64):
    settings = {"include_preprocessing": False} if name.startswith(("EfficientNetV2", "MobileNetV3", "ConvNeXt")) else {}
    return lambda: getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=CLASSES, classifier_activation=None, **settings)


NETWORKS = {
    "perceptron": lambda: of((20,), layers.Dense(32, activation="relu"), layers.Dense(CLASSES)),
    "perceptron_normed": lambda: of((20,), layers.Dense(32), layers.BatchNormalization(), layers.Activation("relu"), layers.Dropout(0.3),
                                    layers.Dense(CLASSES, activation="softmax")),
    "convnet": lambda: of((28, 28, 1), conv(8), layers.MaxPooling2D(), conv(16), layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.5),
                          layers.Dense(CLASSES)),
    "text_convolution": lambda: of_tokens(20, layers.Conv1D(16, 5, activation="relu"), layers.GlobalMaxPooling1D()),
    "volumes": lambda: of((8, 8, 8, 1), layers.Conv3D(4, 3, activation="relu"), layers.MaxPooling3D(), layers.Conv3D(8, 3), layers.Flatten(),
                          layers.Dense(CLASSES)),
    "mobile": mobile, "autoencoder": autoencoder, "unet": unet, "variational": variational,
    "rnn": lambda: of_tokens(12, layers.SimpleRNN(16)),
    "lstm": lambda: of_tokens(12, layers.LSTM(16, return_sequences=True), layers.LSTM(16)),
    "gru": lambda: of_tokens(12, layers.GRU(16)),
    "both_ways": lambda: of_tokens(12, layers.Bidirectional(layers.LSTM(8))),
    "conv_lstm": lambda: of((4, 8, 8, 1), layers.ConvLSTM2D(4, 3, padding="same"), layers.Flatten(), layers.Dense(CLASSES)),
    "encoder": encoder, "decoder": decoder, "mixer": mixer, "tables": tables,
} | {name: application(name) for name in "ConvNeXtTiny DenseNet121 EfficientNetB0 EfficientNetV2B0 MobileNet MobileNetV2 MobileNetV3Small NASNetMobile "
     "ResNet50 ResNet50V2 VGG16 VGG19".split()} | {name: application(name, 75) for name in ("InceptionResNetV2", "InceptionV3", "Xception")}


SUITES = {"keras": lambda: {name + kind: (network, kind) for name, network in NETWORKS.items() for kind in ("", "_gradient")}}


# ---- Programs and their results -------------------------------------------------------------------------------------


def built(network, floats):
    keras.backend.clear_session()
    keras.config.set_floatx(floats)
    keras.config.set_dtype_policy(floats)
    keras.utils.set_random_seed(SEED)
    return network()


# A weight of equal elements hides what is computed before it.
def varied(variable, rng):
    value = np.asarray(variable)
    if value.dtype.kind != "f" or value.size < 2 or (value != value.flat[0]).any():
        return value
    if variable.name == "moving_variance":
        return rng.uniform(0.5, 1.5, value.shape).astype(value.dtype)
    return (0.1 * rng.standard_normal(value.shape) + (value == 1)).astype(value.dtype)


def function_of(model, kind):
    def forward(weights, state, *inputs):
        return model.stateless_call(weights, state, list(inputs) if len(inputs) > 1 else inputs[0], training=False)[0]

    def loss(weights, state, *inputs):
        result = model.stateless_call(weights, state, list(inputs) if len(inputs) > 1 else inputs[0], training=True)[0]
        return jnp.mean((result - 0.3) ** 2)

    return jax.value_and_grad(loss) if kind else forward


def arguments_of(model):
    rng = np.random.default_rng(SEED)
    weights, state = ([varied(v, rng) for v in variables] for variables in (model.trainable_variables, model.non_trainable_variables))
    inputs = []
    for tensor in model.inputs:
        shape = (BATCH, *tensor.shape[1:])
        inputs.append(rng.integers(0, TOKENS, shape).astype(np.int32) if tensor.dtype == "int32" else rng.standard_normal(shape).astype(np.float32))
    return weights, state, *inputs


# Dropout asks for random numbers of the default type: the same ones in f32 and f64.
def bernoulli(key, p=0.5, shape=None, **_):
    return jax.random.uniform(key, shape, jnp.float32) < jnp.float32(p)


def moved(value, rng):
    """The floats of an input, each with one of the floats beside it or as it is."""
    if value.dtype.kind != "f":
        return value
    return np.nextafter(value, value + rng.integers(-1, 2, value.shape).astype(value.dtype))


def other_runs(chosen, count):
    """Results of the framework in f32 for inputs that are moved by at most one unit in the last place, so that each run is rounded otherwise."""
    network, kind = chosen
    jax.random.bernoulli = bernoulli
    model = built(network, "float32")
    weights, state, *inputs = arguments_of(model)
    run = jax.jit(function_of(model, kind), keep_unused=True)
    names = re.findall(r'jax.result_info = "([^"]*)"', run.lower(weights, state, *inputs).as_text())
    rng = np.random.default_rng(SEED)
    for _ in range(count):
        yield dict(zip(names, map(np.asarray, jax.tree.leaves(run(weights, state, *(moved(value, rng) for value in inputs))))))


def prepare(chosen, folder):
    """Writes the program; what goes in by name, what comes out in f32 and in f64, and the count of parameters."""
    network, kind = chosen
    jax.random.bernoulli = bernoulli
    model = built(network, "float32")
    arguments = arguments_of(model)
    text = jax.jit(function_of(model, kind), keep_unused=True).lower(*arguments).as_text()
    (folder / MODEL).write_text(text)
    single = jax.tree.leaves(jax.jit(function_of(model, kind))(*arguments))
    # Keras on JAX makes f32 of f64, unless it is told not to.
    with jax.enable_x64(True), unittest.mock.patch.dict(dtypes.BIT64_TO_BIT32_DTYPE, float64="float64"):
        wide = jax.tree.map(lambda a: a.astype(np.float64) if a.dtype == np.float32 else a, arguments)
        exact = jax.tree.leaves(jax.jit(function_of(built(network, "float64"), kind))(*wide))
        exact = [np.asarray(x) for x in exact]
    assert all(x.dtype == np.float64 for x in exact)
    inputs = {f"arg{i}": np.asarray(a) for i, a in enumerate(jax.tree.leaves(arguments))}
    names = re.findall(r'jax.result_info = "([^"]*)"', text)
    return inputs, dict(zip(names, map(np.asarray, single))), dict(zip(names, exact)), model.count_params()
