#!/usr/bin/env bash
# On a machine with a GPU, within eight minutes: the comparison of every available strategy, the same prompt at 300 new
# tokens, and measured memory. Leaves JSON in a folder.
#
#   bash benchmarks/gpu.sh OUT [MODEL]
#
# MODEL is a hub id, a folder or a .gguf file; "random:SmolLM2-1.7B" makes a model of that shape with random weights, where
# no weights can be had. PYTHON names the interpreter, DTYPE the dtype of a random model. ANY_DEVICE=1 tries it without a GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${1:?usage: bash benchmarks/gpu.sh OUT [MODEL]}
model=${2:-}
python=${PYTHON:-}
if [[ -z $python ]]; then
    python=python3
    if [[ -x .venv/bin/python ]]; then python=.venv/bin/python; fi
fi
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export KVDEMO_HOME=${KVDEMO_HOME:-$scratch/home} PYTHONUNBUFFERED=1

"$python" - "${ANY_DEVICE:-}" <<'PYTHON' | tee "$out/machine.txt"
import platform, sys, torch, transformers

print(f"python {platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}")
if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 24):
    sys.exit("transformers 5.24 or newer is needed (pip install -r requirements.txt)")
if torch.cuda.is_available():
    free, total = torch.cuda.mem_get_info()
    print(f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
elif sys.argv[1]:
    print("no GPU: a trial only")
else:
    sys.exit("torch finds no GPU here; ANY_DEVICE=1 tries the script without one")
PYTHON

if [[ $model == random:* ]]; then
    "$python" -m benchmarks.random_model "${model#random:}" "$scratch/model" --dtype "${DTYPE:-bfloat16}"
    model=$scratch/model
fi
# The parts share seven minutes; should one hang, everything ends at eight.
timeout --kill-after=10 "${LIMIT_S:-480}" "$python" -m benchmarks.gpu "$out" ${model:+--model "$model"} \
    --seconds "${SECONDS_FOR_ALL:-400}" 2>&1 | tee "$out/log.txt"
