#!/usr/bin/env bash
# Has every fault of programs over several devices and processes happen many times in a row, and prints a table. Each of these
# tests checks what the survivors say, that nobody hangs, and that devices go on.
# Usage: tools/repeat_faults.sh [BUILD [TIMES [FILTER [STREAMS]]]]    (build/dev, 50, tests whose names contain FILTER, 1)
# STREAMS: so many processes share the times of a test and run at once, on machines with cores for all of them.
set -euo pipefail
source "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
build=$(cd "${1:-build/dev}" && pwd) times=${2:-50} filter=${3:-} streams=${4:-1}
[[ $((times % streams)) -eq 0 ]] || { echo "$times times cannot be shared by $streams streams: choose a divisor" >&2; exit 1; }
fake=$build/lib/libfake-cuda.so

faults=(
  'mesh MeshCalls.AFailureReachesAllDevices'
  'mesh MeshCalls.MemoryIsTakenEverywhereBeforeAnythingRuns'
  'mesh CollectivesRefused.*'
  'mesh Meeting.NobodyLeavesWhileOthersUseItsMemory'
  'cuda CudaMesh.AFailureOnOneGpuIsTheCalls'
  'cuda CudaMesh.AFailureWithinAGroupEndsTheGroup'
  'cuda CudaMesh.EarlierCallsOutliveAFailure'
  'cuda CudaMesh.CommunicatorsAreAbortedWhenNobodyCallsThem'
  'ranks Ranks.WhoCannotPostTellsTheOthersAndDoesNotGoOn'
  'ranks Ranks.ADeviceThatCannotExchangeFailsThoseOfItsProcess'
  'ranks Folder.AProcessThatDiesIsReported'
  'ranks Folder.WhatNcclFindsLaterIsReported'
  'ranks Folder.AProcessThatThrowsOrEndsIsReported'
  'ranks Folder.AShortageOnOneReachesAll'
  'ranks Folder.WhoIsLateIsNamedAndAwaited'
  'ranks Folder.WhoIsVeryLateIsGivenUp'
  'ranks Folder.WhoIsStoppedIsGivenUp'
  'ranks Folder.WhoCannotJoinIsReported'
  'ranks Folder.ProcessesThatDoDifferentThingsAreTold'
  'ranks Folder.EveryCallCanBeCompared'
  'ranks Folder.FilesOfAnEarlierRunAreRefused'
  'ranks Folder.TwoProcessesOfOneRankAreRefused'
  'ranks Folder.CheckpointsHaveTheFilesOfAllRanks'
  'ranks Folder.ProcessesOfALauncherThatDoNotMeetSaySo'
  'ranks Folder.WithoutNcclItIsSaidWhatIsMissing'
  'ranks Folder.CpuDevicesNeedMpi'
  'cuda Nccl.SaysWhatIsMissing'
  'ranks *Mpi.AProcessThatDiesEndsAll/*'
  'ranks *Mpi.AProcessThatThrowsOrEndsIsReported/*'
  'ranks *Mpi.AFailureOnOneDeviceReachesAll/*'
  'ranks *Mpi.AShortageOnOneReachesAll/*'
  'ranks *Mpi.ProcessesThatDoDifferentThingsAreTold/*'
  'ranks *Mpi.WhoIsLateIsNamedAndAwaited/*'
  'ranks *Mpi.WhoIsStoppedIsGivenUp/*'
  'ranks *Mpi.WhoIsStoppedAtTheEndIsGivenUp/*'
  'ranks *Mpi.CheckpointsHaveTheFilesOfAllRanks/*'
  'ranks *Mpi.AnotherImplementationsPluginIsRefused/*'
  'ranks *Mpi.WithoutAPluginItIsSaidWhatIsMissing/*'
)

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=0
printf '| test | times | failures | seconds |\n| --- | ---: | ---: | ---: |\n'
for fault in "${faults[@]}"; do
  read -r suite test <<<"$fault"
  [[ $test == *$filter* ]] || continue
  environment=()
  [[ $suite != cuda ]] || environment=("BRAZE_CUDA_DRIVER=$fake" "BRAZE_NCCL=$fake")
  start=$SECONDS
  for ((stream = 0; stream < streams; ++stream)); do
    env "${environment[@]}" "$build/bin/test-$suite" --gtest_filter="$test" --gtest_repeat="$((times / streams))" >"$logs/$stream" 2>&1 &
  done
  wait
  log=$logs/all
  cat "$logs"/[0-9]* >"$log"
  passed=$(grep -c '^\[       OK \]' "$log" || true) skipped=$(grep -c '^\[  SKIPPED \] .*ms)' "$log" || true)
  failures=$(grep -c '^\[  FAILED  \] .*ms)' "$log" || true)
  if [[ $passed -eq 0 && $failures -eq 0 ]]; then
    [[ $skipped -gt 0 ]] && passed=skipped || { passed=none; failed=1; }
  fi
  [[ $failures -eq 0 ]] || { failed=1; cp "$log" "$build/repeat_faults.$suite.log"; }
  printf '| %s | %s | %s | %s |\n' "$test" "$passed" "$failures" $((SECONDS - start))
done
exit $failed
