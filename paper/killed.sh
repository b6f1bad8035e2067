#!/usr/bin/env bash
# A run that is killed three times, beside an undisturbed one. Prints the log:
#     bash paper/killed.sh > killed.log
set -u -o pipefail
cd "$(dirname "$0")/.."
results=$(mktemp -d)
trap 'kill -9 ${pid:-} 2> /dev/null; rm -rf "$results"' EXIT
run="python paper/run.py table1 --datasets Chameleon --methods neural_gau_sim"
run+=" --seeds 1 --threads 1 --checkpoint-seconds 5 --results"
folder=runs/Chameleon/neural_gau_sim-*/0

epochs_in() {
    tail -n +2 "$1"/$folder/metrics.csv 2> /dev/null | wc -l # Below the head.
}

must_be() {
    [ "$1" = "$2" ] && return
    echo "exit status $1 instead of $2" >&2
    tail -n 5 "$results/errors" >&2
    exit 1
}

torch=$(python -c 'import torch; print(torch.__version__)')
cpu=$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)
echo "# commit $(git describe --always --dirty), torch $torch, $cpu"
echo "\$ run=\"$run\""
for epochs in 40 90 140; do
    echo "\$ \$run killed & pid=\$!  # kill -9 \$pid after $epochs epochs or more"
    $run "$results/killed" 2> "$results/errors" &
    pid=$!
    while kill -0 $pid && [ "$(epochs_in "$results/killed")" -lt $epochs ]; do
        sleep 0.2
    done
    sleep 2.5 # Between two checkpoints.
    kill -9 $pid
    wait $pid 2> /dev/null
    status=$? pid=
    must_be $status 137
    echo "# exit status $status"
done
for name in killed undisturbed; do
    echo "\$ \$run $name"
    $run "$results/$name" 2> "$results/errors"
    must_be $? 0
done
for file in model.pt metrics.csv; do
    echo "\$ cmp {killed,undisturbed}/$folder/$file && echo the same"
    cmp "$results"/{killed,undisturbed}/$folder/$file && echo the same || exit 1
done
