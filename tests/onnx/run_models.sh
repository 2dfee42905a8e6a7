#!/usr/bin/env bash
# Runs models that packages on PyPI hold, and compares them with ONNX Runtime: fetches them, makes an environment, builds the tool.
# Usage: tests/onnx/run_models.sh. PYTHON may name an interpreter with onnx, onnxruntime and numpy; BUILD a build folder.
# The results go to tests/onnx/results/models.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD:-build/release}

PYTHON=${PYTHON:-$(tools/python_environment.sh onnx-models --requirement tests/onnx/requirements.txt onnxruntime==1.32.0)}
magika=$(tools/fetch_model.sh magika)/magika/models/standard_v3_3
ocr=$(tools/fetch_model.sh rapidocr-onnxruntime)/rapidocr_onnxruntime/models
pitch=$(tools/fetch_model.sh basic-pitch)/basic_pitch/saved_models/icassp_2022
voice=$(tools/fetch_model.sh faster-whisper)/faster_whisper/assets
if [[ -z ${BUILD:-} ]]; then cmake --preset release >/dev/null; fi
cmake --build "$build" --target braze-tool
any=p2o.DynamicDimension
"$PYTHON" tests/onnx/compare_models.py "$build/bin/braze" --results tests/onnx/results/models.md \
  "$magika/model.onnx,unk__214=4" \
  "$ocr/ch_PP-OCRv4_rec_infer.onnx,$any.0=1,?=48,$any.1=320" \
  "$ocr/ch_ppocr_mobile_v2.0_cls_infer.onnx,x_0=1,?=48" \
  "$ocr/ch_PP-OCRv4_det_infer.onnx,$any.0=1,$any.1=96,$any.2=96" \
  "$pitch/nmp.onnx,unk__749=1" \
  "$voice/silero_vad_v6.onnx,seq_len=20"
