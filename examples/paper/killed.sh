#!/usr/bin/env bash
# A run that is killed three times, beside an undisturbed one. Prints the log:
#     bash examples/paper/killed.sh > examples/paper/results/killed.log
set -u
cd "$(dirname "$0")/../.."
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
run="python examples/paper/run.py table1 --datasets Chameleon --methods neural_gau_sim"
run+=" --seeds 1 --threads 1 --checkpoint-seconds 5 --results"
folder=runs/Chameleon/neural_gau_sim-*/0

epochs_in() {
    cat "$1"/$folder/metrics.csv 2> /dev/null | wc -l
}

torch=$(python -c 'import torch; print(torch.__version__)')
echo "# commit $(git rev-parse --short HEAD), torch $torch"
echo "\$ run=\"$run\""
for epochs in 40 90 140; do
    echo "\$ \$run killed & pid=\$!  # kill -9 \$pid after more than $epochs epochs"
    $run "$results/killed" 2> /dev/null &
    pid=$!
    while kill -0 $pid && [ "$(epochs_in "$results/killed")" -le $epochs ]; do
        sleep 0.2
    done
    sleep 2.5 # Between two checkpoints.
    kill -9 $pid
    wait $pid 2> /dev/null
    echo "# exit status $?"
done
for name in killed undisturbed; do
    echo "\$ \$run $name"
    $run "$results/$name" 2> /dev/null
done
for file in model.pt metrics.csv; do
    echo "\$ cmp {killed,undisturbed}/$folder/$file && echo the same"
    cmp "$results"/{killed,undisturbed}/$folder/$file && echo the same
done
