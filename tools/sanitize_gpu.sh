#!/usr/bin/env bash
# Runs compute-sanitizer's four tools over a sample that covers every family of GPU kernels.
# Usage: tools/sanitize_gpu.sh [FOLDER_OF_TESTS]   (bin/ of a build or of an unpacked bundle)
#   BRAZE_TEST_DEVICE, BRAZE_TEST_CODEGEN: as for the tests. SANITIZE_LOGS: a folder for all reports.
set -uo pipefail
source "$(dirname "$0")/help.sh"
bin=${1:-build/release/bin}
export BRAZE_TEST_DEVICE=${BRAZE_TEST_DEVICE:-cuda:0}
logs=${SANITIZE_LOGS:-$(mktemp -d)}
mkdir -p "$logs"

# The test, and what of it: pointwise and movement (transposes through shared memory), rows, columns
# and full reductions with their fills, clusters, products of both kinds, cascades of dots and products
# of windows, random graphs.
sample=(
  "test-compiler Movement.*:Random.*:Reductions.*:Conversions.*"
  "test-compiler MatrixUnits.*:Slices.EveryScheduleAgrees:Dots.*:Fusion.*"
  "test-gpu_simulator Clusters.Rows*:Clusters.OneBlock*"
  "test-graphs Graphs.CascadesOfDotsAreOneKernel:Graphs.*OfCascades*:Graphs.Products*"
  "test-random_graphs RandomCascades.*:RandomWindowedProducts.*"
  "test-random_graphs Seeds/*/0"
)
# Racecheck does not follow a warp's barrier to the arrival of one of its lanes. So it reports slots
# that a role fills by stores again and again (gradients of attention with grouped heads, in the
# fourth sample); where each lane arrives, it reports nothing.
for tool in memcheck racecheck synccheck initcheck; do
  for i in "${!sample[@]}"; do
    read -r test filter <<< "${sample[i]}"
    # What a tensor map stores, initcheck takes for never written.
    if [[ $tool == initcheck ]]; then
      case $filter in Graphs.* | RandomCascades.*) continue ;; esac
      filter+=:-MatrixUnits.*
    fi
    timeout "${SANITIZE_SECONDS:-1800}" compute-sanitizer --tool "$tool" --error-exitcode 99 \
      "$bin/$test" --gtest_brief=1 --gtest_filter="$filter" > "$logs/$tool-$i.log" 2>&1 &
  done
done
wait
result=0
for log in "$logs"/*.log; do
  # Racecheck sums up in hazards, the others in errors.
  summary=$(grep -hE 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -n 1 | sed 's/^=* *//')
  tests=$(grep -hE 'PASSED|FAILED' "$log" | head -n 1)
  echo "$(basename "$log" .log) | ${summary:-ended early: $log} | ${tests:-}"
  grep -qE 'SUMMARY: 0 (errors|hazards)' "$log" || result=1
done
exit "$result"
