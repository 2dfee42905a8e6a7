"""Braze beside PyTorch in one process: tensors cross by DLPack without a copy, and on a GPU both run
on one stream.

Usage: beside_torch.py [DEVICE]
"""

import contextlib
import sys

SKIPPED = 77

TEXT = """braze 1 graph
symbol n: 1..65536
graph @scaled_softmax(%x: f32[n, 256], %scale: f32[]) {
  %s = broadcast %scale {axes: []} : f32[n, 256]
  %t = mul %x, %s : f32[n, 256]
  %m = reduce max %t {axes: [1]} : f32[n]
  %mb = broadcast %m {axes: [0]} : f32[n, 256]
  %d = sub %t, %mb : f32[n, 256]
  %e = exp %d : f32[n, 256]
  %l = reduce sum %e {axes: [1]} : f32[n]
  %lb = broadcast %l {axes: [0]} : f32[n, 256]
  %y = div %e, %lb : f32[n, 256]
  return %y as "y"
}
"""

NOT = """braze 1 graph
graph @negate(%x: bool[4]) {
  %y = logical_not %x : bool[4]
  return %y as "y"
}
"""


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    try:
        import braze
        import torch
    except ImportError as missing:
        print(f"skipped: all of it: {missing}; BRAZE_PYTHON names a Python that has it")
        return SKIPPED
    on_gpu = device != "cpu"
    if on_gpu and not torch.cuda.is_available():
        print("skipped: all of it: this PyTorch finds no GPU")
        return SKIPPED
    function = braze.jit_text(TEXT, device, name="softmax.braze")

    shared = contextlib.nullcontext()
    if on_gpu:
        theirs = torch.cuda.Stream()
        torch.cuda.set_stream(theirs)
        shared = braze.Stream(device, theirs.cuda_stream)
    scale = torch.tensor(0.5, device=device)
    x = torch.randn(1000, 256, device=device)
    with shared:
        for _ in range(10):
            # PyTorch, Braze, PyTorch: one after the other on one stream. With a GPU the host waits for nothing.
            x = x * 1.5 + 0.25
            y = torch.from_dlpack(function(x, scale))
            z = y + 1
            wanted = torch.softmax(x * 0.5, dim=1)
            error = (z - 1 - wanted).abs().max().item()
            if error > 1e-6:
                print(f"the results differ by {error}")
                return 1
            x = y * 256

    # PyTorch lets a bool be any byte; every byte except 0 is true.
    flags = torch.tensor([0, 1, 2, 255], dtype=torch.uint8, device=device).view(torch.bool)
    negated = torch.from_dlpack(braze.jit_text(NOT, device, name="not.braze")(flags))
    if negated.int().tolist() != [1, 0, 0, 0]:
        print(f"bools of other bytes than 0 and 1 were negated to {negated.int().tolist()}")
        return 1

    if on_gpu:
        # Each on a stream of its own: what crosses is waited for, on the GPU.
        for _ in range(10):
            x = x * 1.5 + 0.25
            y = torch.from_dlpack(function(x, 0.5))
            if not torch.allclose(y, torch.softmax(x * 0.5, dim=1), atol=1e-6):
                print("the results differ where each has its own stream")
                return 1
            x = y * 256
        aligned = torch.arange(64.0, device=device)
        if torch.from_dlpack(braze.from_dlpack(aligned)).data_ptr() != aligned.data_ptr():
            print("a tensor on the GPU was copied")
            return 1
        # What is strided is copied on the GPU.
        wide = torch.arange(512.0 * 300, device=device).reshape(300, 512)
        for strided in (wide[:, ::2], wide.t(), wide.reshape(30, 10, 512).transpose(0, 1)):
            if not torch.equal(torch.from_dlpack(braze.from_dlpack(strided)), strided):
                print(f"a tensor with the strides {strided.stride()} came back as another")
                return 1
        torch.cuda.synchronize()
    else:
        # What is strided is copied, and goes on being right.
        wide = torch.arange(512.0 * 300).reshape(300, 512)
        if not torch.equal(torch.from_dlpack(braze.from_dlpack(wide[:, ::2])), wide[:, ::2]):
            print("a strided tensor came back as another")
            return 1
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64,
                      torch.bool):
            tensor = torch.arange(12).reshape(3, 4).to(dtype)
            back = torch.from_dlpack(braze.from_dlpack(tensor))
            if back.dtype != dtype or not torch.equal(back, tensor):
                print(f"{dtype} came back as another")
                return 1
            if back.data_ptr() != tensor.data_ptr() and tensor.data_ptr() % 64 == 0:
                print(f"{dtype} was copied")
                return 1
    print(f"softmax by Braze on {device} as by PyTorch {torch.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
